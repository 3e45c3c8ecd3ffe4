#!/usr/bin/env python3
"""Every link of the built pages leads somewhere: a local one to a file and an anchor in it, an external one to
a well-formed https address (nothing is fetched). Pages load nothing from elsewhere.

Usage: check_links.py FOLDER | check_links.py --self-test
"""
import html.parser
import pathlib
import sys
import tempfile
import urllib.parse

LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("object", "data"), ("iframe", "src")}


class Page(html.parser.HTMLParser):
    """The anchors of a page, and where it leads: (address, whether it is loaded with the page)."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        for name in ("href", "src", "data"):
            if values.get(name):
                is_page = tag == "link" and values.get("rel") in ("next", "prev", "index", "search")
                self.links.append((values[name], (tag, name) in LOADS and not is_page))


def fault_of(link, loaded, page, pages, exists):
    """What is wrong with a link of `page`; None when nothing is."""
    address = urllib.parse.urlsplit(link)
    if address.scheme in ("data", "mailto"):
        return None
    if address.scheme or address.netloc:
        if loaded:
            return f"loads {link}"
        return None if address.scheme == "https" and "." in address.netloc else f"has the malformed address {link}"
    target = (page.parent / urllib.parse.unquote(address.path)).resolve() if address.path else page
    if target.is_dir():
        target /= "index.html"
    if not exists(target):
        return f"links to {link}, which does not exist"
    anchor = urllib.parse.unquote(address.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return f"links to {link}, whose page has no such anchor"
    return None


def faults(folder):
    paths = sorted(folder.resolve().rglob("*.html"))
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    found = [] if pages else ["there is no page"]
    for path, page in pages.items():
        for link, loaded in page.links:
            fault = fault_of(link, loaded, path, pages, pathlib.Path.exists)
            if fault:
                found.append(f"{path.relative_to(folder.resolve())} {fault}")
    return found, len(pages), sum(len(page.links) for page in pages.values())


GOOD = '<a href="b.html#x">b</a> <a href="https://example.org/a">e</a> <a href="#y"></a><p id="y">'
BAD = {
    "missing page": '<a href="c.html">',
    "missing anchor": '<a href="b.html#z">',
    "missing anchor in itself": '<a href="#z">',
    "plain http": '<a href="http://example.org">',
    "loaded from elsewhere": '<script src="https://example.org/a.js"></script>',
    "missing image": '<img src="a.svg">',
}


def faults_of_page(text):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "a.html").write_text(text, encoding="utf-8")
        (folder / "b.html").write_text('<p id="x">', encoding="utf-8")
        return faults(folder)[0]


def self_test():
    wrong = [name for name, text in BAD.items() if len(faults_of_page(text)) != 1]
    wrong += ["good page"] * bool(faults_of_page(GOOD))
    with tempfile.TemporaryDirectory() as name:
        wrong += ["no page"] * (not faults(pathlib.Path(name))[0])
    print(f"self-test: wrong about {wrong}" if wrong else "self-test holds")
    return bool(wrong)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return self_test()
    found, pages, links = faults(pathlib.Path(sys.argv[1]))
    for fault in found[:50]:
        print(fault)
    print(f"{pages} pages, {links} links, {len(found)} faults")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
