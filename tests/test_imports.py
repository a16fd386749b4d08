"""What an import brings with it, and what it can do without."""

import topkopt

from .classifiers import ESTIMATORS
from .expect import raises, run_python


def test_the_core_imports_neither_scikit_learn_nor_matplotlib():
    code = (
        "import sys, topkopt, topkopt.plotting; "
        "print([m for m in ('sklearn', 'matplotlib', 'joblib') if m in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_without_scikit_learn():
    names = [cls.__name__ for cls in ESTIMATORS]
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import topkopt\n"
        f"for name in {names}:\n"
        "    try: getattr(topkopt, name)\n"
        "    except ImportError as error: print(error)"
    )
    said = run_python(code).splitlines()
    assert len(said) == len(names)
    assert all('pip install "topkopt[sklearn]"' in line for line in said)


def test_unknown_attribute():
    with raises(AttributeError, "module 'topkopt' has no attribute 'nothing'"):
        _ = topkopt.nothing
    assert {cls.__name__ for cls in ESTIMATORS} <= set(dir(topkopt))
