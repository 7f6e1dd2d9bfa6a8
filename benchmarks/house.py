"""Print the shape of the house in figures: `python benchmarks/house.py [FOLDER]`, for any checkout.

Folders and files, lines, functions, imports inside functions and by a text (`later("a.b")`), re-exports
(`from a import b as b`), circles between files and between folders (a folder and one inside it count as two), each
without imports by a text and with them, private helpers that are called once, public names without a docstring; and the
language: how long the names of functions are, how many assigned names say nothing, how many docstrings of functions
begin with a verb. Needs the standard library alone.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOMS = (
    "dpserve_verify",
    "accountant",
    "models",
    "training",
    "local",
    "dpserve_cluster",
    "dpserve_platform",
    "serving",
    "dpserve",
)
SMALL = 5  # four lines under a signature of one
Tree = dict[str, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCK = ast.stmt | ast.excepthandler | ast.match_case  # what may hold an import
IMPORTERS = {"later", "load", "require", "import_module", "import_quietly", "__import__"}  # functions that take a name
# Names that name nothing: what such a variable holds must be guessed from its surroundings.
DIALECT = """
    found each told said kept asked given made own one other others known here more many what like seen stood stated
    named held left right near far apart beside whole some every alone
"""
# With which the docstring of a function may begin.
VERBS = """
    accept account acquire act add adjust admit advance aggregate align allow announce answer append apply
    approximate archive arrange ask assemble assert assign attach attest audit authenticate authorize avoid await
    balance begin bend bin bind bound bracket break bring bucket build burn cache calculate calibrate call cancel
    carry cast catch center centre change charge check choose claim clean clear clip close code collect combine come
    commit compare compile complete compose compress compute concatenate configure confirm connect consider
    construct consume contain continue convert copy correct count cover create cross cut deal debit decide declare
    decode decrypt decrease define defer delete deliver demand derive describe detach detect determine digest
    disable discard dispatch display distribute divide do double download draw drain drive drop edit embed emit
    enable encode encrypt end enforce enqueue ensure enter enumerate escape establish estimate evaluate exchange
    exclude execute exit expand expect explain export expose express extend extract fail fetch fill filter find
    finish fit fix flatten flip flush fold follow forbid force forget fork format forward free freeze gather
    generate get give go grant group grow guard guess halve handle hash hold identify ignore import include increase
    increment index infer inform initialize insert inspect install intersect invert invoke issue iterate join judge
    jump keep kill label launch lay lead learn leave let lift limit link list listen load locate lock log look lower
    make map mark mask match measure meet merge migrate mix move multiply name narrow negate negotiate normalize
    normalise note notify number obtain offer omit open order organize overwrite pack pad parse partition pass pause
    pay perform permit pick place plan play plot point poll pop post predict prepare present preserve press prevent
    price print probe process produce project promote propose protect prove provide publish pull push put query
    queue quit quote raise rank read rebuild recalculate receive recompute record recover redirect redraw reduce
    refer refine refresh refund refuse register rehearse reject release reload remember remove rename render renew
    reopen repair repeat replace replay reply report represent request require reserve reset reshape resolve respond
    restart restore restrict resume retire retrieve retry return reverse revert revoke rewrite rotate round route
    run sample save say scale scan schedule score search seal see select send separate serialize serve set settle
    shape share shift show shrink shuffle shut sign simulate skip sleep slice smooth solve sort spawn spell spend
    split spread sort stand start state stay stop store stream strip submit subscribe subtract sum supply support
    suppress swap switch synchronize take tally tell terminate test throw tidy time track train transfer transform
    translate transpose traverse treat trim truncate try tune turn unpack unseal update upgrade upload use validate
    verify visit wait wake walk warm warn watch weigh widen withdraw work wrap write yield
"""


def sources(root: Path) -> Tree:
    """Path from `root` -> what is in it, for every file of the rooms."""
    paths = sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


def lines_outside_tests(root: Path) -> int:
    """Count the lines of Python in rooms, benchmarks, studies, examples and documentation."""
    places = (*ROOMS, "benchmarks", "studies", "examples", "docs")
    paths = [path for place in places for path in (root / place).rglob("*.py") if not path.parent.name.startswith(".")]
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def inner_imports(tree: ast.Module) -> int:
    """Imports inside functions."""
    return len({id(i) for f in functions(tree) for i in ast.walk(f) if isinstance(i, ast.Import | ast.ImportFrom)})


def reexports(tree: ast.Module) -> int:
    """`from a import b as b`: a name that only passes through."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return sum(alias.asname == alias.name for node in found for alias in node.names)


def helpers_called_once(tree: ast.Module) -> list[Function]:
    """Private functions of at most four lines under their signature that one place of their own file names."""
    named = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    named.update(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    private = [node for node in functions(tree) if node.name.startswith("_") and not node.name.startswith("__")]
    return [node for node in private if length(node) <= SMALL and named[node.name] == 1]


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public functions, classes and methods without a docstring. What a base class documents counts as its own
    (a method whose class has a base and that overrides), as do constructors and setters."""
    for node in tree.body:
        if isinstance(node, (*Function.__args__, ast.ClassDef)) and not node.name.startswith("_"):
            if ast.get_docstring(node) is None:
                yield node.name
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if (
                        isinstance(inner, Function)
                        and not inner.name.startswith("_")
                        and ast.get_docstring(inner) is None
                    ):
                        marks = {ast.unparse(mark) for mark in inner.decorator_list}
                        if not any("override" in mark or mark.endswith(".setter") for mark in marks):
                            yield f"{node.name}.{inner.name}"


def public(tree: ast.Module) -> int:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    inside = [node for body in (tree, *classes) for node in body.body]
    return sum(
        isinstance(node, (*Function.__args__, ast.ClassDef)) and not node.name.startswith("_") for node in inside
    )


def arrows(trees: Tree, by_text: bool = True) -> dict[str, set[str]]:
    """File -> files that it imports, also inside functions and, unless told otherwise, by a text; imports for types
    alone are left out.
    """
    files = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in trees}
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        targets = {files.get(name) or files.get(name.rpartition(".")[0]) for _, name in imported(tree)}
        targets |= {files.get(name) for _, name in imported_by_text(tree)} if by_text else set()
        found[path] |= {target for target in targets if target and target != path}
    return found


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and full dotted name of what a file imports, other than for types alone."""
    for node in imports(tree):
        package = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        yield from ((node.lineno, f"{package}{alias.name}") for alias in node.names)


def imported_by_text(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of each text that may be that of a module, in a file that imports any by a text: in
    `later("a.b")`, in a table of such names, and in "a.b:name" as a server takes it. A name that is put together of
    parts is not seen.
    """
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if IMPORTERS & {getattr(call, "id", getattr(call, "attr", None)) for call in calls}:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.partition(":")[0]
                if "." in name and all(map(str.isidentifier, name.split("."))):
                    yield node.lineno, name


def imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, BLOCK) and not (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        ):
            yield from imports(child)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected files of more than one (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            ring = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(ring) > 1:
                found.append(sorted(ring))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def folder_arrows(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return, of arrows between files, folder -> folders whose files it imports, those above and inside it included."""
    folders: dict[str, set[str]] = defaultdict(set)
    for path, imported in graph.items():
        folder = Path(path).parent
        folders[folder.as_posix()] |= {Path(other).parent.as_posix() for other in imported} - {folder.as_posix()}
    return folders


def name_length(trees: Tree) -> float:
    """Return the mean length of the names of functions, leading underscores and special methods left out."""
    names = [node.name.lstrip("_") for tree in trees.values() for node in functions(tree) if node.name[:2] != "__"]
    return sum(map(len, names)) / len(names)


def dialect_share(trees: Tree) -> float:
    """Return the share of DIALECT among the names that are assigned, counted by place."""
    dialect = set(DIALECT.split())
    nodes = (node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Name))
    names = [node.id for node in nodes if isinstance(node.ctx, ast.Store)]
    return sum(name in dialect for name in names) / len(names)


def verb_share(trees: Tree) -> float:
    """Return the share of docstrings of functions whose first word is one of VERBS."""
    texts = [text for tree in trees.values() for node in functions(tree) if (text := ast.get_docstring(node))]
    return sum(begins_with_verb(text) for text in texts) / len(texts)


def begins_with_verb(docstring: str) -> bool:
    """Tell whether a docstring begins as an order: "Return the name", not "The name" or "Returns the name"."""
    return docstring.split()[0].strip(",.:;").lower() in VERBS.split()


def without_verb(tree: ast.Module) -> Iterator[str]:
    """Yield line, name and first words of functions whose docstring begins otherwise."""
    for node in functions(tree):
        text = ast.get_docstring(node)
        if text and not begins_with_verb(text):
            yield f"{node.lineno} {node.name}: {' '.join(text.split()[:6])}"


def figures(root: Path) -> dict[str, object]:
    trees = sources(root)
    folders = Counter(Path(path).parent.as_posix() for path in trees)
    largest, count = folders.most_common(1)[0]
    every = [node for tree in trees.values() for node in functions(tree)]
    lengths = sorted(map(length, every))
    bare = [f"{path}:{name}" for path, tree in trees.items() for name in undocumented(tree)]
    lines = sum(len((root / path).read_text("utf-8").splitlines()) for path in trees)
    names = sum(public(tree) for tree in trees.values())
    by_import, graph = arrows(trees, by_text=False), arrows(trees)
    by_text = sum(len(files - by_import[path]) for path, files in graph.items())
    return {
        "largest folder": f"{count} files ({largest})",
        "files": len(trees),
        "lines in the rooms": lines,
        "lines outside tests": lines_outside_tests(root),
        "longest file": max(len((root / path).read_text("utf-8").splitlines()) for path in trees),
        "functions": f"{len(every)}, median {lengths[len(lengths) // 2]}, longest {lengths[-1]} lines",
        "circles between files": circles(by_import) or 0,
        "circles between folders": circles(folder_arrows(by_import)) or 0,
        "and with imports by a text": circles(graph) or 0,
        "between folders": circles(folder_arrows(graph)) or 0,
        "re-exports": sum(map(reexports, trees.values())),
        "imports inside functions": sum(map(inner_imports, trees.values())),
        "arrows by a text": by_text,
        "small private helpers called once": sum(len(helpers_called_once(tree)) for tree in trees.values()),
        "public names with a docstring": f"{1 - len(bare) / names:.1%} of {names}",
        "letters of a function's name": f"{name_length(trees):.1f}",
        "assigned names that say nothing": f"{dialect_share(trees):.1%}",
        "docstrings that begin with a verb": f"{verb_share(trees):.1%}",
    }


LISTS = {
    "--verbs": without_verb,
    "--bare": undocumented,
    "--once": lambda tree: (f"{node.lineno} {node.name}" for node in helpers_called_once(tree)),
}

if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word not in LISTS]
    place = Path(words[0]) if words else Path(__file__).resolve().parents[1]
    for asked in LISTS.keys() & set(sys.argv):
        for path, tree in sources(place).items():
            for line in LISTS[asked](tree):
                print(f"{path}:{line}")
    if not LISTS.keys() & set(sys.argv):
        for name, value in figures(place).items():
            print(f"{name:36} {value}")
