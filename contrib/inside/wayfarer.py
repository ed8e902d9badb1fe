"""What wayfarer.h offers, for Python: make an image, leave, go back, be left alone for a while.

    cc -shared -fPIC -pthread -o libwayfarer.so wayfarer.c      beside this file, or where WAYFARER_LIBRARY says

    import wayfarer
    with wayfarer.disabled():       # no image is made in here
        send_and_receive()
    if wayfarer.checkpoint():       # False: there is an image; True: this process has come from it
        reconnect()
"""

import atexit
import contextlib
import ctypes
import os

__all__ = ["Refused", "checkpoint", "leave", "go_back", "disabled", "image_file", "hooks"]

_PATH = os.environ.get("WAYFARER_LIBRARY") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "libwayfarer.so"
)
try:
    _library = ctypes.CDLL(_PATH, use_errno=True)
except OSError as error:
    raise ImportError(
        f"{error}: expected it to be made by `cc -shared -fPIC -pthread -o {_PATH} wayfarer.c`"
    ) from error
_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_library.wayfarer_why.restype = ctypes.c_char_p
_library.wayfarer_image_file.argtypes = [ctypes.c_char_p]
_library.wayfarer_hooks.argtypes = [_HOOK, _HOOK, _HOOK, ctypes.c_void_p]
_RESTARTED, _LATER = 1, 2


class Refused(OSError):
    """What was asked for is not done; `errno` is ENOTCONN if nobody is there who could do it."""


def _asked(result):
    if result >= 0:
        return result == _RESTARTED
    number = ctypes.get_errno()
    why = _library.wayfarer_why().decode(errors="replace")
    raise Refused(number, why or os.strerror(number))


def checkpoint():
    """Makes an image. Whether this process has come from it; False, too, within `disabled()`, at whose end it is made."""
    return _asked(_library.wayfarer_checkpoint())


def leave():
    """Makes an image and leaves: returns where the job was started again."""
    return _asked(_library.wayfarer_leave())


def go_back():
    """Becomes what it was at its last image; does not return, unless it is refused."""
    return _asked(_library.wayfarer_go_back())


@contextlib.contextmanager
def disabled():
    """No image is made within."""
    _library.wayfarer_disable()
    try:
        yield
    finally:
        _library.wayfarer_enable()


def image_file(name):
    """Each image is also copied to this file; None: no more."""
    if _library.wayfarer_image_file(None if name is None else os.fsencode(name)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


_kept = []


def hooks(before=None, after=None, restarted=None):
    """Called in another thread around each image: before it; behind it, here or in a process that has come from it."""
    made = [_HOOK(lambda _, does=does: does()) if does else _HOOK() for does in (before, after, restarted)]
    _kept.extend(made)
    if _library.wayfarer_hooks(*made, None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    # Nothing can be called in an interpreter that has ended.
    atexit.register(_library.wayfarer_end_hooks)
