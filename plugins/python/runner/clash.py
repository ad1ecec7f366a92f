"""The package index has another project called gpurun. It has files of the same names as ours,
gpurun-batch: the one that is installed last replaces those of the other."""

import sys


def clash():
    """What is wrong and what to do if the other project is installed here; "" if it is not."""
    from importlib import metadata
    try:
        other = metadata.distribution("gpurun")
        files = other.files
        version = other.version
    except Exception:  # there is none, or its metadata is damaged
        return ""
    if files is not None and not any(str(file) == "gpurun/__init__.py" for file in files):
        return ""
    return ("the package gpurun %s is installed in this environment, too: it is another project with files of the same names, and "
            "the package that was installed last replaced those of the other; keep gpurun-batch with: %s" % (version, repair(uninstall=True)))


def repair(uninstall=False):
    """The command that installs all files of gpurun-batch again."""
    pip = sys.executable + " -m pip "
    return (pip + "uninstall -y gpurun && " if uninstall else "") + pip + "install --force-reinstall --no-deps gpurun-batch"
