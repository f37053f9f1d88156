"""The paper's regression study on nine UCI data sets: its three tables, and what none of them has.

setups.py says what is trained, study.py trains and scores one set, results.py keeps the scores in a file that a later
run goes on with, printed.py knows the paper's tables, tables.py and picture.py set ours beside them, and command.py is
`wherefrom reproduce uci`.
"""
