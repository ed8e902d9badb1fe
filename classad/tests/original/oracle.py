"""Answers lines of JSON with what HTCondor's library makes of expressions and ads."""
import json, struct, sys
import htcondor2  # its configuration makes the library what it is in HTCondor
import classad2
from classad2 import ClassAd, ExprTree, Value
from datetime import datetime


def tag(value):
    if value == Value.Undefined and isinstance(value, Value):
        return "undefined"
    if isinstance(value, Value):
        return "error"
    if isinstance(value, bool):
        return "b:true" if value else "b:false"
    if isinstance(value, int):
        return "i:%d" % value
    if isinstance(value, float):
        return "r:nan" if value != value else "r:" + struct.pack(">d", value).hex()
    if isinstance(value, str):
        return "s:" + value
    if isinstance(value, datetime):
        return "t:%d" % value.timestamp()
    if isinstance(value, list):
        return "[" + ",".join(tag(item) for item in value) + "]"
    if isinstance(value, ClassAd):
        return "a:" + repr(value)
    return "e:" + repr(value)


def guarded(work):
    try:
        return work()
    except UnicodeDecodeError:
        return None
    except Exception as error:
        return "fail"


def ad(text):
    return ClassAd(text) if text is not None else None


def answer(request):
    if "ad" in request:
        try:
            whole = ClassAd(request["ad"])
        except Exception:
            return {"text": "parse"}
        return {
            "text": guarded(lambda: repr(whole)),
            "old": guarded(lambda: whole.printOld()),
            "json": guarded(lambda: whole.printJson()),
        }
    if "old" in request:
        ads = guarded(lambda: [repr(a) for a in classad2.parseAds(request["old"], classad2.ParserType.Old)])
        return {"ads": ads}
    if "left" in request:
        left, right = ad(request["left"]), ad(request["right"])
        rank = lambda my, target: tag(my.lookup("rank").eval(my, target)) if "rank" in my else "undefined"
        return {
            "left_accepts": "b:true" if right.matches(left) else "b:false",
            "right_accepts": "b:true" if left.matches(right) else "b:false",
            "left_rank": guarded(lambda: rank(left, right)),
            "right_rank": guarded(lambda: rank(right, left)),
        }
    try:
        expr = ExprTree(request["expr"])
    except Exception:
        return {"text": "parse"}
    my = ad(request.get("my", "[]"))
    target = ad(request.get("target"))
    found = {"text": guarded(lambda: repr(expr)), "value": guarded(lambda: tag(expr.eval(my, target)))}
    if request.get("more"):
        def flat():
            flat = my.flatten(expr)
            return "e:" + repr(flat) if isinstance(flat, ExprTree) else tag(flat)
        found["flat"] = guarded(flat)
        found["external"] = guarded(lambda: ",".join(my.externalRefs(expr)))
        found["internal"] = guarded(lambda: ",".join(my.internalRefs(expr)))
    return found


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
