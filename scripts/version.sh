# Sets VERSION, COMMIT and COMMIT_TIME from git, unless they are set: a source archive has
# no history. The abbreviated commit has a fixed length, because git's default depends on
# the size of the repository.
VERSION=${VERSION:-$(git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo dev)}
COMMIT=${COMMIT:-$(git rev-parse HEAD 2>/dev/null || true)}
COMMIT_TIME=${COMMIT_TIME:-$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || true)}
