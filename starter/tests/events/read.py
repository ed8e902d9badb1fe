"""Says what HTCondor's reader finds in the logs that are named, all at the same time.

A line "log"; for each event a line "event" and lines "NAME=VALUE"; "error" for what it cannot read.
"""
import multiprocessing
import sys

import htcondor2


def read(path):
    found = []
    log = htcondor2.JobEventLog(path)
    # After an error it goes on behind it.
    for _ in range(100_000):
        try:
            event = next(log.events(stop_after=0))
        except StopIteration:
            return found
        except Exception as error:
            found.append(f"error={type(error).__name__}")
            continue
        found.append("event")
        found.append(f"Timestamp={event.timestamp}")
        found.extend(f"{name}={event[name]}".replace("\n", " ") for name in event)
    raise RuntimeError(f"{path} has no end")


if __name__ == "__main__":
    # Where the reader meets half an event, it sleeps for a second.
    with multiprocessing.get_context("fork").Pool(min(64, len(sys.argv) - 1)) as pool:
        for found in pool.map(read, sys.argv[1:], chunksize=1):
            print("log", *found, sep="\n")
