"""Copies and pickles of models: a model's file, the state and settings of its training, and attributes of its own."""
import os
import tempfile

from . import _core
from .contexts import context
from .errors import InvalidArgument

_TRAINING = 16  # the flag of a key that files of models do not keep


def _written(save, path):
    save(path)
    with open(path, "rb") as file:
        return file.read()


def parts(model):
    """What __reduce__ returns."""
    if model._net.setting("weights") == "int8":
        raise InvalidArgument("a model with 8-bit weights cannot be pickled or copied; open its file again")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        data = _written(model.save, path)
        training = _written(model.save_training, path) if model._trained else None
    settings = {key["name"]: model._net.setting(key["name"]) for key in _core.keys()
                if key["flags"] & _TRAINING and key["name"] != "decay-set"}  # which is fixed when a model is made
    settings.update(model._asked)  # not what training has chosen
    own = {name: value for name, value in vars(model).items() if name not in ("_net", "_kept", "_held", "_asked")}
    return made_of, (type(model), model._where, data, training, settings), own


def made_of(kind, where, data, training, settings):
    model = kind.__new__(kind)
    model._take(_core.net_open_bytes(context(*where), data), where)
    for key, value in settings.items():
        model._net.set(key, value)
    if training:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "training")
            with open(path, "wb") as file:
                file.write(training)
            model.load_training(path)
    return model
