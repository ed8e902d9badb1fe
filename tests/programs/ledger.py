"""ledger.py STEPS PAUSE: reads, appends, overwrites, renames and removes files as it goes, each step from the one before.

What it leaves and says depends on STEPS alone, whatever the machine and however long PAUSE (seconds) is.
"""
import hashlib
import os
import sys
import time

steps, pause = int(sys.argv[1]), float(sys.argv[2])
state = b"begin"
memory = bytearray(hashlib.shake_256(b"memory").digest(1 << 20))
table = open("table", "r+b", buffering=0)
log = open("log", "ab", buffering=0)
with open("in", "rb") as lines:
    for step in range(steps):
        line = lines.readline()
        assert line == b"line %d of the input\n" % step, (step, line)
        place = int.from_bytes(state[:3].rjust(3), "big") % (len(memory) - 32)
        state = hashlib.sha256(state + line + memory[place : place + 64]).digest()
        memory[place : place + 32] = state
        # A record is read, changed, and written where it was.
        record = state[0] % 64 * 32
        table.seek(record)
        old = table.read(32)
        assert len(old) == 32, (step, old)
        table.seek(record)
        table.write(bytes(a ^ b for a, b in zip(old, state)))
        log.write(b"%d %s\n" % (step, state.hex().encode()))
        # One of five files is replaced as a whole, another is gone for a while.
        with open("part.new", "w") as part:
            part.write(state.hex() * (1 + state[1] % 40))
        os.rename("part.new", f"part.{step % 5}")
        if step % 7 == 6:
            os.unlink(f"part.{step % 5}")
        print(step, state.hex()[:16], flush=True)
        time.sleep(pause)
print("at last", hashlib.sha256(memory).hexdigest(), len(sys.stdin.read()), flush=True)
