"""The movie company: audiences are tasks, and every viewer is a mixture of them.

A preference pays where tasks disagree about the same input. Genres do not: a film's own features
say its genre. Audiences do: groups of viewers who rate alike, and differently from other groups,
the same films. `ratings` reads MovieLens and keeps new viewers apart from early ones, `audiences`
finds groups of early viewers, `comparison` learns them as tasks and infers each new viewer's
preference from their first ratings, `ranking` and `findings` say what came out, and `service`
leaves a knowledge base, viewers and validation rows for the explorer; `factorisation` is the
recommender to compare with.
"""
