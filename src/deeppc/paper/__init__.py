"""The paper, reproduced by commands: one recipe for each of its tables and figures, and a check of its claims.

    deeppc paper list
    deeppc paper run depth --scale workstation --jobs 2
    deeppc paper claims

``recipes/`` says what is trained and shown, ``scales.py`` how large, ``hyper.py`` with which hyper-parameters,
``claims.py`` what the paper states. ``store.py`` keeps what was trained; ``values/`` holds the paper's own numbers.
"""
