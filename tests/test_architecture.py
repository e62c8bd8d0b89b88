"""The shape of the code base, held by reading it: layers, imports, globals, prints and sizes."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "megalite"

LAYERS = {
    -1: {"errors"},
    0: {"log", "plugins", "native", "__init__"},
    1: {"config", "topology"},
    2: {"schedule", "state"},
    3: {"ops", "parallel"},
    4: {"nn", "optim", "data"},
    5: {"models", "dp"},
    6: {"pipeline"},
    7: {"checkpoint"},
    8: {"convert"},
    9: {"train"},
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
TORCH_FREE = {"config", "topology", "schedule", "state"}

FILES = sorted(PACKAGE.rglob("*.py"))
MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS = 400, 80, 8
MAX_LINE = 120
OURS = ("megalite", "tests", "tools", "examples", "benchmarks")


def _unit(path: Path) -> str:
    """The package, or the top-level module, that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(tree: ast.AST) -> list[tuple[str, ast.stmt]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module, node))
            found += [(f"{node.module}.{alias.name}", node) for alias in node.names]
    return found


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


@pytest.fixture(params=FILES, ids=lambda path: str(path.relative_to(ROOT)))
def source(request):
    return request.param


def test_every_package_has_a_layer():
    assert {_unit(path) for path in FILES} == set(LAYER_OF)


def test_imports_go_down_or_stay_at_home(source):
    own = _unit(source)
    for name, node in _imports(_tree(source)):
        parts = name.split(".")
        if parts[0] != "megalite" or len(parts) < 2 or parts[1] not in LAYER_OF or parts[1] == own:
            continue
        assert LAYER_OF[parts[1]] < LAYER_OF[own], (
            f"line {node.lineno}: {own} (L{LAYER_OF[own]}) imports {name} (L{LAYER_OF[parts[1]]})"
        )


def test_descriptions_and_plans_do_not_import_torch(source):
    if _unit(source) in TORCH_FREE:
        assert not [name for name, _ in _imports(_tree(source)) if name.split(".")[0] == "torch"]


def test_own_modules_are_imported_at_the_top(source):
    for function in _functions(_tree(source)):
        inner = [name for name, _ in _imports(function) if name.split(".")[0] == "megalite"]
        assert not inner, f"{function.name} imports {inner}"


def test_no_global_statement_and_no_print(source):
    for node in ast.walk(_tree(source)):
        assert not isinstance(node, ast.Global), f"line {node.lineno}: global {node.names}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno}: print; use megalite.log"


def test_files_and_functions_stay_small(source):
    assert len(source.read_text(encoding="utf-8").splitlines()) <= MAX_FILE
    for function in _functions(_tree(source)):
        length = function.end_lineno - function.lineno + 1
        assert length <= MAX_FUNCTION, f"{function.name}: {length} lines"
        arguments = [a.arg for a in function.args.posonlyargs + function.args.args + function.args.kwonlyargs]
        counted = [name for name in arguments if name not in ("self", "cls", "ctx")]
        if not function.name.startswith("_") and function.name not in ("forward", "backward"):
            assert len(counted) <= MAX_PARAMETERS, f"{function.name}: {len(counted)} parameters"


def test_every_file_says_what_it_is_for(source):
    assert ast.get_docstring(_tree(source)) or not source.read_text().strip(), "the module docstring is missing"


def test_asserts_carry_a_sentence(source):
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Assert):
            assert node.msg is not None, f"line {node.lineno}: a bare assert"


@pytest.mark.parametrize("directory", OURS)
def test_lines_fit_the_page(directory):
    paths = [*(ROOT / directory).rglob("*.py"), *ROOT.glob("*.py")]
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {len(line)} characters"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MAX_LINE
    ]
    assert paths and not lines, "\n".join(lines)
