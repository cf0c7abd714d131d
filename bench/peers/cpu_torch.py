"""Imports torch, transformers and kvpress as tools/setup_peers installs them. Import this before any of them.

torch's wheel is a CUDA build whose libraries name CUDA libraries that are empty stand-ins here. No symbol is missing as
long as each is looked up when it is called (RTLD_LAZY): without a device none is.
"""
import importlib.machinery
import importlib.util
import os
import sys
import types

sys.setdlopenflags(os.RTLD_LAZY)
os.environ["HF_HUB_OFFLINE"] = "1"  # weights come from the GGUF file alone
os.environ["TQDM_DISABLE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin at barriers slow a shared machine down
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402
import transformers  # noqa: E402


def _stand_in(name, function):
    """A module whose one function says that the package is missing, unless the package is there.

    kvpress imports these packages for programs of its own (fetching data sets, making statistics): nothing here calls
    them. Made after transformers is imported, which would take the stand-in for the package.
    """
    if importlib.util.find_spec(name) is not None:
        return

    def missing(*_, **__):
        raise RuntimeError(f"the package {name} is not installed here (bench/peers/requirements.txt)")

    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    setattr(module, function, missing)
    sys.modules[name] = module


_stand_in("datasets", "load_dataset")
_stand_in("fire", "Fire")

import kvpress  # noqa: E402

transformers.logging.disable_progress_bar()

__all__ = ["kvpress", "torch", "transformers"]
