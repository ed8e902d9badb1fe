# numpy with OpenBLAS threads: products, a solve, an eigenvalue problem.
import numpy, os, sys

rng = numpy.random.default_rng(7)
a = rng.standard_normal((700, 700))
b = rng.standard_normal((700, 700))
for turn in range(60):
    a = a @ b
    a /= numpy.abs(a).max()
    if turn % 10 == 0:
        x = numpy.linalg.solve(a + 3 * numpy.eye(700), b)
        print(turn, f"{a.sum():.9e} {x.trace():.9e}", flush=True)
if len(os.listdir("/proc/self/task")) < 2:
    sys.exit("numpy computes with one thread: no OpenBLAS with threads here")
w = numpy.linalg.eigvalsh(a @ a.T)
print("end", f"{w[-1]:.9e}")
