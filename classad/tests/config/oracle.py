"""Reads configurations with the real library: a line of JSON asks, a line of JSON answers.

Each is read in a child, so that one which kills the library, or makes it expand for ever, does no harm."""

import json
import os
import signal
import sys

import htcondor2

# What a child may take: some configurations are expanded for ever.
PATIENCE_SECONDS = 3


def tag(value):
    """A value as text; those that the library has a type for are told apart."""
    if isinstance(value, bool):
        return {"truth": value}
    if isinstance(value, (int, float)):
        return {"number": value}
    return value


def everything():
    """All names and their values."""
    values = {}
    for name in htcondor2.param.keys():
        try:
            values[name.lower()] = htcondor2.param[name]
        except KeyError:
            pass
    return values


BUILT_IN = everything()


def read(request):
    """The values of all names that are asked for; with "all", also the names whose values are not those that are built in."""
    os.environ["CONDOR_CONFIG"] = request["path"]
    os.environ.update(request.get("environment", {}))
    htcondor2.reload_config()
    values = {}
    for name in request["names"]:
        try:
            values[name] = tag(htcondor2.param[name])
        except KeyError:
            values[name] = None
    if not request.get("all"):
        return {"values": values}
    now = everything()
    others = [name for name in now if now[name] != BUILT_IN.get(name)]
    return {"values": values, "others": others}


def answer(request):
    """The answer of a child, or how it ended."""
    if "path" not in request:
        # Only whether there is a library was asked, or what it has built in.
        return {name: tag(value) for name, value in BUILT_IN.items()}
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(PATIENCE_SECONDS)
        with os.fdopen(writer, "w") as pipe:
            json.dump(read(request), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    if status != 0 or not text:
        return {"refused": True}
    return json.loads(text)


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
