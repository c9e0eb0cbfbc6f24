# SPDX-License-Identifier: Apache-2.0
"""Files that are written as a whole or not at all, in the way of harness/report/part_file.h: a part beside the file, which its writer locks for as
long as it lives, becomes the file. A part without a lock was left by a writer that was killed. And a lock for those who read a file and write what
they have made of it, in the way of harness/report/file_lock.h."""

import contextlib
import errno
import fcntl
import os
import stat

MOST_PARTS = 100


def _part_of(path, number):
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.r2bench-part" + ("" if number == 1 else str(number)))


def _lock(descriptor):
    """False: another process has it. True also where the file system knows no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _has_name(descriptor, path):
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _remove_if_stale(part):
    with contextlib.suppress(OSError):
        descriptor = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _has_name(descriptor, part):
                    os.remove(part)
        finally:
            os.close(descriptor)


def _make_part(path):
    """The new part and its descriptor."""
    for number in range(1, MOST_PARTS + 1):
        _remove_if_stale(_part_of(path, number))
    for number in range(1, MOST_PARTS + 1):
        part = _part_of(path, number)
        try:
            descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        except FileExistsError:
            continue
        if _lock(descriptor) and _has_name(descriptor, part):
            return part, descriptor
        os.close(descriptor)  # another writer took it for stale before it was locked
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


@contextlib.contextmanager
def whole_file(path):
    """The path to write to, where an empty file is: it becomes `path` at the end, with the permissions of what was there, and is removed if there is
    an error. Links are followed. OSError if it cannot be made."""
    path = os.path.realpath(path)
    part, descriptor = _make_part(path)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))
        yield part
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone(path):
    """One process at a time is in here with this path. It waits; there is no lock where the folder cannot be written or the file system knows none."""
    folder, name = os.path.split(path)
    lock = os.path.join(folder, f".{name}.r2bench-lock")
    descriptor = None
    with contextlib.suppress(OSError):
        while True:
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _has_name(descriptor, lock):
                break
            os.close(descriptor)  # its holder has removed it
            descriptor = None
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.remove(lock)
            os.close(descriptor)
