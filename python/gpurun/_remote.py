"""Data that a URL names: downloaded beside the output while a job needs it."""

import collections
import fcntl
import hashlib
import http.client
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

BLOCK = 1 << 20
TRIES = 5
TIMEOUT = 60.0  # seconds without an answer
REPORTED = 100 << 20  # bytes from which a download is reported

Remote = collections.namedtuple("Remote", "stamp size open")  # open(at) returns a stream from that byte on, and where it begins


def is_url(path):
    return isinstance(path, str) and re.match(r"[a-z][a-z0-9+]*://", path) is not None


def ending(url):
    """How the name of a file ends, which says what its format is."""
    return re.search(r"(\.\w+){0,2}$", os.path.basename(urllib.parse.urlsplit(os.fspath(url)).path)).group(0)


def find(url):
    """What a URL names. Its stamp changes with the content."""
    return _retried(url, lambda: _http(url) if url.startswith(("http://", "https://")) else _filesystem(url))


def download(url, remote, path, finish):
    """Download to a file, unless another call does. What an interrupted download has left, it continues."""
    partial = path + ".partial"
    with open(os.open(partial, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.exists(path):
            return
        _retried(url, lambda: _copy(url, remote, file))
        finish(partial)
        os.replace(partial, path)


def _copy(url, remote, file):
    have = os.fstat(file.fileno()).st_size
    if remote.size is not None and remote.size >= REPORTED:
        print("gpurun: downloading %s, %d of %d MB" % (url, have // 1000000, remote.size // 1000000), file=sys.stderr, flush=True)
    stream, begin = remote.open(have if remote.size is not None and have < remote.size else 0)
    with stream:
        file.truncate(begin)
        file.seek(begin)
        for block in iter(lambda: stream.read(BLOCK), b""):
            file.write(block)
        file.flush()
        if remote.size is not None and file.tell() != remote.size:
            raise http.client.IncompleteRead(b"", remote.size - file.tell())


def _retried(url, action):
    for wait in [2.0 ** n for n in range(TRIES - 1)] + [None]:
        try:
            return action()
        except urllib.error.HTTPError as error:
            if wait is None or error.code < 500 and error.code not in (408, 429):
                raise OSError("cannot read %s: %s %s" % (url, error.code, error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            if wait is None or isinstance(error, (FileNotFoundError, PermissionError)):
                raise OSError("cannot read %s: %s" % (url, getattr(error, "reason", error))) from None
        time.sleep(wait)


def _http(url):
    answer = _request(url, {})
    with answer:
        stamp = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        size = answer.headers.get("Content-Length")
    if stamp is None:
        raise FileNotFoundError("the server does not say which version of the file it has (ETag, Last-Modified): download it, and pass its path")

    def begin(at):
        stream = _request(url, {"Range": "bytes=%d-" % at, "If-Range": stamp} if at else {})
        if (stream.headers.get("ETag") or stream.headers.get("Last-Modified")) != stamp:
            stream.close()
            raise FileNotFoundError("it changed during the download; make the same call again")
        return stream, at if stream.status == 206 else 0

    return Remote(stamp, None if size is None else int(size), begin)


def _request(url, headers):
    # Accept-Encoding: a compressed body would not be the file.
    request = urllib.request.Request(url, headers={"User-Agent": "gpurun", "Accept-Encoding": "identity", **headers})
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _filesystem(url):
    try:
        import fsspec
    except ImportError:
        raise FileNotFoundError("this kind of URL needs the package fsspec, and the one for its service: pip install fsspec") from None
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise FileNotFoundError(error) from None

    def begin(at):
        stream = system.open(path, "rb")
        stream.seek(at)
        return stream, at

    return Remote(str(system.ukey(path)), system.size(path), begin)


def key(url, remote):
    return hashlib.sha256(repr((url, remote.stamp, remote.size)).encode()).hexdigest()
