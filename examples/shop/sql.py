"""sql.py FILE|SQL: executes it on the shop's database, and prints rows of the last statement."""

import os
import sys
from pathlib import Path

import psycopg

text = sys.argv[1]
if text.endswith(".sql"):
    text = Path(text).read_text("utf-8")
with psycopg.connect(os.environ["TRIBUTARY_PRIMARY_DSN"]) as session:
    found = session.execute(text)
    while found.nextset():
        pass
    for row in found if found.description else ():
        print(*row, sep="\t")
