"""Nothing reads a file or foreign text but the readers that tests/harness/readers.py holds to their limits."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("conclave", "party", "coordinator", "guardian", "runtime", "protocols", "simulations")

# Calls that turn bytes into values, by their last two names; ".x" is a method of anything.
CALLS = frozenset(
    "tomllib.load tomllib.loads np.load np.fromfile np.loadtxt np.genfromtxt np.memmap format.read_magic "
    "format.read_array format.read_array_header_1_0 format.read_array_header_2_0 zipfile.ZipFile zipfile.is_zipfile "
    "tarfile.open gzip.open gzip.decompress json.load json.loads json.JSONDecoder onnx.load onnx.load_model "
    "onnxruntime.InferenceSession sqlite3.connect csv.reader csv.DictReader pd.read_csv pd.read_parquet "
    "parquet.ParquetFile parquet.read_table pq.read_table Image.open pickle.load pickle.loads torch.load joblib.load "
    "safetensors.safe_open io.load io.get_untrusted_types serialization.load_pem_private_key "
    "serialization.load_der_private_key x509.load_pem_x509_certificate x509.load_der_x509_certificate "
    "x509.load_pem_x509_csr .read_bytes .read_text".split()
)
_LAST_NAME = re.compile(rf"\b({'|'.join(call.rpartition('.')[2] for call in CALLS)})\b")

_SHORT = {"numpy": "np", "pandas": "pd"}
_DATABASE = "opens a database that it makes itself, and turns SQLite's errors into StorageFailed"
_TABLE = "reads the one kind of table; in the table of readers"
_OWN_SOURCE = "hashes this package's own source"
ALLOWED = {
    "protocols/reading.py": {"tomllib.loads": "the one way", "json.loads": "the one way"},
    "protocols/array_files.py": {
        "np.memmap": "the one way, once the header fits the file",
        "zipfile.ZipFile": "the one way",
        "format.read_magic": "of archives that another library reads",
        "format.read_array_header_1_0": "of archives that another library reads",
        "format.read_array_header_2_0": "of archives that another library reads",
    },
    "protocols/crypto/identity.py": {
        ".read_text": "this package's own list of words",
        "serialization.load_pem_private_key": "the one way",
        "x509.load_pem_x509_certificate": "the one way",
        "x509.load_der_x509_certificate": "the one way",
        "x509.load_pem_x509_csr": "the one way",
    },
    "party/budget/watermarks.py": {"sqlite3.connect": _DATABASE},
    "party/keeping.py": {"zipfile.ZipFile": "in the table of readers", "sqlite3.connect": _DATABASE},
    "protocols/ledger/database.py": {"sqlite3.connect": _DATABASE},
    "protocols/installing.py": {".read_text": "pip's note about this distribution"},
    "protocols/refusals/table.py": {".read_text": "this package's own table", "tomllib.loads": "of the same"},
    "runtime/page.py": {".read_text": "this package's own style"},
    "runtime/officers_file.py": {".read_text": "this package's own text"},
    "party/commands/homes.py": {".read_text": "this package's own template"},
    "runtime/tables.py": {"csv.reader": _TABLE},
    "runtime/parquet_tables.py": {"parquet.ParquetFile": _TABLE},
    "party/data/images.py": {"Image.open": _TABLE},
    "protocols/release/labels.py": {"csv.reader": _TABLE},
    "protocols/release/sums.py": {"csv.reader": _TABLE},
    "simulations/setup/budgets.py": {"csv.DictReader": _TABLE},
    "runtime/checked_files.py": {"gzip.open": _TABLE},
    "simulations/datasets/published_tables.py": {"pd.read_csv": "of a published file whose content is checked"},
    "simulations/source.py": {".read_bytes": _OWN_SOURCE},
    "simulations/engines/engine.py": {".read_text": "the kernel's own file"},
    "protocols/features/onnx_model.py": {"onnxruntime.InferenceSession": "in the table of readers"},
    "coordinator/release/export_torch.py": {"safetensors.safe_open": "of a release under verification; errors caught"},
    "coordinator/release/release.py": {".read_bytes": "of files that it has just written"},
    "coordinator/release/export_graphs.py": {"onnx.load": "of files that it has just written"},
    "coordinator/encoders/resnet.py": {"torch.load": "weights alone, of a file whose hash was given; errors caught"},
    "coordinator/encoders/efficientnet.py": {"torch.load": "weights alone, of a package's file, by its hash"},
    "party/teachers/trees.py": {
        "zipfile.ZipFile": "after check_archive",
        "np.load": "the same",
        "io.load": "in the table of readers",
    },
    "party/teachers/own.py": {"io.load": "catches whatever it raises", "io.get_untrusted_types": "the same"},
    "party/teachers/own_torch.py": {"safetensors.safe_open": "as torch_teacher.py"},
    "party/teachers/torch_teacher.py": {"safetensors.safe_open": "of a release under verification; errors caught"},
    "party/demo/demo.py": {
        "json.loads": "of what its own commands print",
        ".read_text": "of files that its own commands wrote",
        ".read_bytes": "the same",
    },
    "party/demo/figures.py": {
        "json.loads": "of the release that it has just made",
        ".read_text": "of the release that it has just made",
        "onnxruntime.InferenceSession": "of the release that it has just made",
    },
}


def calls_of(path):
    """The calls in a file that are in CALLS."""
    text = path.read_text(encoding="utf-8")
    # Most files hold none of the names, and need not be parsed.
    for node in ast.walk(ast.parse(text)) if _LAST_NAME.search(text) else ():
        # Whatever names it counts, called or passed on.
        if isinstance(node, ast.Attribute):
            holder = node.value
            last = holder.id if isinstance(holder, ast.Name) else getattr(holder, "attr", "")
            for name in (f"{last}.{node.attr}", f".{node.attr}"):
                if name in CALLS and not (name.startswith(".") and last == "reading"):
                    yield name
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                module = (node.module or "").rpartition(".")[2]
                name = f"{_SHORT.get(module, module)}.{each.name}"
                if name in CALLS:
                    yield name


def test_nothing_is_read_but_by_the_readers_that_are_held_to_their_limits():
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if names := set(calls_of(path)):
                found[path.relative_to(ROOT).as_posix()] = names
    assert found == {path: set(calls) for path, calls in ALLOWED.items()}


def test_a_call_that_goes_round_them_is_found(tmp_path):
    source = tmp_path / "new.py"
    source.write_text("import json\nfrom numpy import load\nx = json.loads(text)\ny = path.read_bytes()\n")
    assert set(calls_of(source)) == {"np.load", "json.loads", ".read_bytes"}
