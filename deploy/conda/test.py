"""Tests the recipe: make conda-test. It renders it for both platforms, then builds and tests the
package with a channel of stand-ins for conda's packages, which use the programs of this machine."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import rattler_build
import rattler_build.progress

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = "%d.%d" % sys.version_info[:2]
GO = os.environ.get("GO", "go")


def render(platform):
    """The recipe for a platform."""
    recipe = rattler_build.Stage0Recipe.from_file(os.path.join(HERE, "recipe.yaml"))
    variants = rattler_build.VariantConfig.from_file(os.path.join(HERE, "variants.yaml"))
    [variant] = recipe.render(variants, rattler_build.RenderConfig(platform=rattler_build.PlatformConfig(target_platform=platform)))
    return variant


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def compilers(files):
    """The Go of this machine, and its C compiler for old systems."""
    go = {name: output(GO, "env", name) for name in ("GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOROOT")}
    go["PATH"] = "%s:%s/bin:$PATH" % (output(os.path.join(HERE, "../../scripts/sysroot.sh"), "amd64"), go.pop("GOROOT"))
    write(os.path.join(files, "etc/conda/activate.d/compilers.sh"), "".join('export %s="%s"\n' % setting for setting in go.items()))


def python(files):
    """The Python of this machine, with the prefix of the environment."""
    write(os.path.join(files, "pyvenv.cfg"), "home = %s\n" % os.path.dirname(os.path.realpath(sys.executable)))
    os.makedirs(os.path.join(files, "bin"))
    for name in ("python", "python3", "python" + VERSION):
        os.symlink(os.path.realpath(sys.executable), os.path.join(files, "bin", name))


def module(name):
    """A package of this interpreter."""
    def copy(files):
        shutil.copytree(os.path.join(sysconfig.get_path("purelib"), name), os.path.join(files, "lib", "python" + VERSION, "site-packages", name),
                        ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def nothing(files):
    os.makedirs(files)


def channel(folder):
    """A channel of stand-ins."""
    records = {}
    for name, version, fill in (("go-cgo_linux-64", "1.26.0", compilers), ("gcc_linux-64", "14.0", nothing), ("sysroot_linux-64", "2.28", nothing),
                                ("python", VERSION + ".0", python), ("pip", "24.0", module("pip")), ("cloudpickle", "3.1", module("cloudpickle"))):
        files = os.path.join(folder, "files", name)
        fill(files)
        made = rattler_build.assemble_package(name, version, "linux-64", "0", os.path.join(folder, "linux-64"), files_dir=files)
        with open(made.path, "rb") as file:
            data = file.read()
        records[os.path.basename(made.path)] = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": [], "subdir": "linux-64",
                                                "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    write(os.path.join(folder, "linux-64", "repodata.json"), json.dumps({"info": {"subdir": "linux-64"}, "packages": {}, "packages.conda": records}))
    write(os.path.join(folder, "noarch", "repodata.json"), json.dumps({"info": {"subdir": "noarch"}, "packages": {}, "packages.conda": {}}))
    return "file://" + folder


class Log(rattler_build.progress.SimpleProgressCallback):
    """Shows what the build and the tests print."""

    def on_log(self, event):
        if event.span or event.level != "info":
            print(event.message)


for platform in ("linux-64", "linux-aarch64"):
    needs = render(platform).recipe.to_dict()["requirements"]["build"]
    assert needs == ["go-cgo_" + platform, "gcc_" + platform, "sysroot_%s 2.28.*" % platform], needs
if os.uname().machine != "x86_64":
    sys.exit("SKIPPED: the stand-ins are for x86_64: the recipe is rendered, not built")
with tempfile.TemporaryDirectory() as work:
    tool = rattler_build.ToolConfiguration(test_strategy="native", use_zstd=False, use_bz2=False, use_sharded=False)
    built = render("linux-64").run_build(tool, output_dir=os.path.join(work, "out"), channels=[channel(os.path.join(work, "channel"))],
                                         progress_callback=Log())
    print("built and tested", os.path.basename(str(built.packages[0])))
