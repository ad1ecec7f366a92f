"""Adds the files of the repository that pages link to, below source/, so that the site is complete.

A link from a page to ../examples/llm leads to the README of that folder, one to
../ARCHITECTURE.md to that page, one to a source file to its text.
"""

import os
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
PREFIX = "source/"


def repository(src_uri):
    """The path in the repository of a page of the site."""
    return src_uri[len(PREFIX):] if src_uri.startswith(PREFIX) else "docs/" + src_uri


def resolve(src_uri, target):
    """The path in the repository that a link leads to, None if it leaves the repository."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    path = os.path.normpath(os.path.join(os.path.dirname(repository(src_uri)), target))
    if not os.path.exists(path):
        raise PluginError("%s: the link %s leads nowhere" % (repository(src_uri), target))
    if os.path.isdir(path):
        path = os.path.join(path, "README.md")
        if not os.path.exists(path):
            path = first_source(os.path.dirname(path))
    return path


def first_source(folder):
    """The file that describes a folder without a README."""
    for name in ["doc.go"] + sorted(os.listdir(folder)):
        if os.path.isfile(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise PluginError("%s has no file to link to" % folder)


def site_uri(path):
    """Where a file of the repository is in the site."""
    if path.startswith("docs/"):
        return path[len("docs/"):]
    return PREFIX + (path if path.endswith((".md", ".png")) else path + ".txt")


def on_files(files, config):
    pending = [f for f in files if f.is_documentation_page()]
    while pending:
        page = pending.pop()
        text = FENCE.sub("", open(repository(page.src_uri), encoding="utf-8").read())
        for match in LINK.finditer(text):
            path = resolve(page.src_uri, match.group(2))
            if path is None or files.get_file_from_path(site_uri(path)) or path.startswith("docs/"):
                continue
            with open(path, encoding="utf-8") as source:
                added = File.generated(config, site_uri(path), content=source.read())
            files.append(added)
            if added.is_documentation_page():
                pending.append(added)
    return files


def on_page_markdown(markdown, page, config, files):
    def rewrite(match):
        path = resolve(page.file.src_uri, match.group(2))
        if path is None:
            return match.group(0)
        target = os.path.relpath(site_uri(path), os.path.dirname(page.file.src_uri) or ".")
        return match.group(1) + target + (match.group(3) or "") + match.group(4)

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(rewrite, markdown[end:fence.start()]), fence.group(0)]
        end = fence.end()
    return "".join(parts + [LINK.sub(rewrite, markdown[end:])])
