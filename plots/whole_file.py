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
MOST_REMOVED = 1000  # times in a row that the holder of a lock removes its file before it can be locked
MOST_GONE = 10  # times in a row that it is removed before that of another user can be opened


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


def _is_still_there(descriptor, path):
    """Of a file that nobody renames, but that its holder may have removed; also where inode numbers change from one look to the next."""
    return _has_name(descriptor, path) or (os.fstat(descriptor).st_nlink > 0 and os.path.lexists(path))


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
        if _lock(descriptor) and _is_still_there(descriptor, part):
            return part, descriptor
        os.close(descriptor)  # another writer took it for stale before it was locked
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _take_over(path, descriptor):
    """Gives the part the owner, the group and the permissions of the file that it replaces. OSError: it must not."""
    try:
        before = os.stat(path)
    except FileNotFoundError:
        return
    made = os.fstat(descriptor)
    if (before.st_uid, before.st_gid) != (made.st_uid, made.st_gid):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)


def _part_like(path):
    """As _make_part(), with the owner and permissions of what is there. None: what is there can be written in place only."""
    part = None
    try:
        part, descriptor = _make_part(path)
        _take_over(path, descriptor)
        return part, descriptor
    except OSError as error:
        if part is not None:
            os.remove(part)
            os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and os.path.isfile(path) and os.access(path, os.W_OK, effective_ids=True):
            return None
        raise


@contextlib.contextmanager
def whole_file(path):
    """The path to write to, where an empty file is: it becomes `path` at the end, with the owner and permissions of what was there, and is removed if
    there is an error. Links are followed. Where the folder cannot be written, or the new file cannot have the owner of the old one, but the old one can
    be written, the path is its own: an error may then cut it off. OSError if it cannot be made."""
    path = os.path.realpath(path)
    made = _part_like(path)
    if made is None:
        yield path
        return
    part, descriptor = made
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        raise
    finally:
        os.close(descriptor)


def _open_lock(lock):
    """Opens the file, which it makes where it is missing. OSError if it cannot be opened."""
    for _ in range(MOST_GONE):
        try:
            return os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
        except PermissionError as error:
            # Another user's can be locked all the same, but not written; nor opened with O_CREAT in some folders.
            with contextlib.suppress(FileNotFoundError):
                return os.open(lock, os.O_RDONLY | os.O_NOFOLLOW)
            denied = error
    raise denied


def _lock_of(path):
    """The locked file of alone() and its descriptor; None: there is none."""
    folder, name = os.path.split(os.path.realpath(path))
    lock = os.path.join(folder, f".{name}.r2bench-lock")
    if os.path.exists(path) and not os.path.isfile(path):
        return None
    with contextlib.suppress(OSError):
        for _ in range(MOST_REMOVED):
            descriptor = _open_lock(lock)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is_still_there(descriptor, lock):
                    return lock, descriptor
            except OSError:  # the file system knows no locks
                return lock, descriptor
            except BaseException:  # Ctrl-C
                os.close(descriptor)
                raise
            os.close(descriptor)  # its holder has removed it
    return None


@contextlib.contextmanager
def alone(path):
    """One process at a time is in here with this path, or with another name of the same file. It waits. There is no lock where the folder cannot be
    written, the file system knows none, or the path is no regular file."""
    held = _lock_of(path)
    try:
        yield
    finally:
        if held is not None:
            lock, descriptor = held
            with contextlib.suppress(OSError):
                os.remove(lock)
            os.close(descriptor)
