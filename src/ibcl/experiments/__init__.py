"""What runs experiments, on top of the library and of its public names only.

`methods` are continual learners behind one interface, ours and others'; `benchmarks` are tasks as
features and labels; `evaluation` runs methods on benchmarks and reports what came out.
"""
