"""The paper, reproduced by commands: one recipe for each of its tables and figures, and a check of its claims.

    deeppc paper list
    deeppc paper run depth --scale laptop --jobs 2
    deeppc paper claims

``scales.py`` says how large a recipe is run, ``hyper.py`` with which hyper-parameters, ``recipes/`` what is trained and
shown, ``claims.py`` what the paper states. ``values/`` holds the paper's own numbers.
"""
