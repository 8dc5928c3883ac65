"""The movie company: genres arrive as tasks, and every viewer has a preference between them.

`ratings` reads MovieLens and looks at every rating with the eyes of the moment before it was given;
`factorisation` is the recommender to compare with; `experiment` learns, infers preferences and
compares; `summary` writes it down; `store` leaves a knowledge base, viewers and validation rows for
the service.
"""
