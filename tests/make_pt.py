"""Writes files as torch.save does, without PyTorch, honest ones and hostile ones: what cli_unpickle.sh reads.

usage: make_pt.py FOLDER"""
import collections
import io
import os
import pickle
import struct
import sys
import types
import zipfile

FORMATS = {"FloatStorage": "f", "DoubleStorage": "d", "LongStorage": "q", "HalfStorage": "e", "ByteStorage": "B"}


def pretend():
    """As much of torch and attrdict as pickle asks for when it writes a name."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in FORMATS:
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    for name in ("_rebuild_tensor_v2", "_rebuild_parameter", "_rebuild_other"):
        function = types.FunctionType((lambda *_: None).__code__, {}, name)
        function.__module__, function.__qualname__ = "torch._utils", name
        setattr(utils, name, function)
    attrdict = types.ModuleType("attrdict.dictionary")
    attrdict.AttrDict = type("AttrDict", (dict,), {"__module__": "attrdict.dictionary",
                                                   "__getstate__": lambda self: (dict(self), tuple, False)})
    sys.modules.update({"torch": torch, "torch._utils": utils, "attrdict": types.ModuleType("attrdict"),
                        "attrdict.dictionary": attrdict})
    return torch, utils, attrdict.AttrDict


TORCH, UTILS, ATTR_DICT = pretend()


class Storage:
    def __init__(self, key, values, kind="FloatStorage", count=None):
        self.key, self.kind, self.count = key, kind, len(values) if count is None else count
        self.bytes = struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)


class Tensor:
    def __init__(self, storage, shape, strides, offset=0, call="_rebuild_tensor_v2"):
        self.storage, self.call, self.place = storage, getattr(UTILS, call), (offset, shape, strides)

    def __reduce__(self):
        return self.call, (self.storage, *self.place, False, collections.OrderedDict())


class Parameter:
    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        return UTILS._rebuild_parameter, (self.tensor, True, collections.OrderedDict())


class Call:
    """Something that runs when it is loaded."""

    def __init__(self, function, *arguments):
        self.parts = function, arguments

    def __reduce__(self):
        return self.parts


def pickled(value, legacy=False):
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if isinstance(obj, Storage):
                more = (None,) if legacy else ()
                return ("storage", getattr(TORCH, obj.kind), obj.key, "cpu", obj.count, *more)
            return None

    out = io.BytesIO()
    Pickler(out, 2).dump(value)
    return out.getvalue()


def save(path, value, stores=(), folder="archive", extra=(), compression=zipfile.ZIP_STORED, program=None):
    with zipfile.ZipFile(path, "w", compression) as out:
        out.writestr(f"{folder}/data.pkl", pickled(value) if program is None else program)
        out.writestr(f"{folder}/byteorder", "little")
        for store in stores:
            out.writestr(f"{folder}/data/{store.key}", store.bytes)
        for name, content in extra:
            out.writestr(name, content)


def save_legacy(path, value, stores, counts=None):
    with open(path, "wb") as out:
        for part in (0x1950a86a20f9469cfc6c, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}):
            out.write(pickle.dumps(part, 2))
        out.write(pickled(value, legacy=True) + pickle.dumps([store.key for store in stores], 2))
        for i, store in enumerate(stores):
            out.write(struct.pack("<q", store.count if counts is None else counts[i]) + store.bytes)


def honest():
    a, b = Storage("0", range(6)), Storage("1", [0.5, -2, 1024], "DoubleStorage")
    long, half = Storage("2", [7, -1], "LongStorage"), Storage("3", [1.5, -0.25], "HalfStorage")
    state = collections.OrderedDict(
        whole=Tensor(a, (2, 3), (3, 1)), transposed=Parameter(Tensor(a, (3, 2), (1, 3))),
        column=Tensor(a, (2,), (3,), 2), every_other=Tensor(a, (3,), (2,)),
        spread=Tensor(a, (2, 2), (0, 1), 4), spread_last=Tensor(a, (2, 3), (1, 0), 4),
        number=Tensor(b, (), (), 1), double=Tensor(b, (3,), (1,)), empty=Tensor(a, (0, 4), (4, 1)),
        steps=Tensor(long, (2,), (1,)), half=Tensor(half, (2, 1), (1, 1)))
    return state, [a, b, long, half]


def save_honest():
    state, stores = honest()
    save("honest.pt", state, stores)
    save_legacy("legacy.pt", state, stores)
    save("authors.pt", ATTR_DICT(model=state, step=1), stores)
    adam = {"state": {0: {"exp_avg": state["whole"], "step": state["number"]}}, "param_groups": [{"params": [0]}]}
    save("nested.pt", {"step": 3, "best": 0.5, "run": {"model": state}, "optimizer": adam}, stores)
    save("two.pt", {"model": {"w": state["whole"]}, "ema": {"w": state["double"]}}, stores)
    save("prefixed.pt", {"module.w": state["whole"], "epoch": 3}, stores)
    one = Storage("0", [1, 2])
    save("part-1.bin", {"b": Tensor(one, (2,), (1,))}, [one])
    save("part-2.bin", {"a": Tensor(one, (1,), (1,), 1)}, [one])


def save_hostile():
    store = Storage("0", range(4))
    fine = Tensor(store, (4,), (1,))
    for name, value in {
            "system": Call(os.system, "touch unpickle-ran"),
            "eval": {"w": fine, "x": Call(eval, "open('unpickle-ran', 'w')")},
            "other": {"w": Tensor(store, (4,), (1,), 0, "_rebuild_other")}, "object": {"w": fine, "x": io.StringIO()},
            "huge-shape": {"w": Tensor(store, (1 << 62, 1 << 62), (0, 0))},
            "spread": {"w": Tensor(store, (1 << 20, 1 << 20), (0, 0))}, "beyond": {"w": Tensor(store, (4,), (2,))},
            "negative-stride": {"w": Tensor(store, (4,), (-1,), 3)}, "negative": {"w": Tensor(store, (-4,), (1,))},
            "negative-offset": {"w": Tensor(store, (2,), (1,), -2)}, "uneven": {"w": Tensor(store, (4,), (1, 1))},
            "text-shape": {"w": Tensor(store, "4", (1,))},
            "count": {"w": Tensor(Storage("0", [], count=1 << 40), (4,), (1,))},
            "outside": {"w": Tensor(Storage("../../secret", [], count=1), (1,), (1,))},
            "value": 5, "no-tensor": {"a": 1},
            "same-name": {"m.w": fine, "w": fine}}.items():
        save(f"{name}.pt", value, [store])
    save("climbs.pt", {"w": fine}, [store], extra=[("../unpickle-ran", "x")])
    save("rooted.pt", {"w": fine}, [store], extra=[("/tmp/unpickle-ran", "x")])
    save("compressed.pt", {"w": fine}, [store], compression=zipfile.ZIP_DEFLATED)
    save("big-endian.pt", {"w": fine}, [store], folder="b", extra=[("b/x", "")])
    with zipfile.ZipFile("big-endian.pt", "w") as out:
        out.writestr("b/data.pkl", pickled({"w": fine}))
        out.writestr("b/byteorder", "big")
    save_legacy("legacy-count.pt", {"w": fine}, [store], [-1])
    save_legacy("legacy-long.pt", {"w": fine}, [store], [1 << 60])
    save_legacy("legacy-system.pt", Call(os.system, "touch unpickle-ran"), [])


# pickles that pickle itself does not write
PROGRAMS = {"lines": b"\x80\x04\x8c\x03a\nb\x8c\x01c\x93.",
            "underflow": b"\x80\x020.", "no-mark": b"\x80\x02K\x01t.", "no-end": b"\x80\x02}",
            "instance": b"(cos\nsystem\no.",
            "memo": b"\x80\x02}r\xff\xff\xff\x7f.", "extension": b"\x80\x02\x82\x01.",
            "odd": b"\x80\x02}(K\x01u.",
            "long-text": b"\x80\x02X\xff\xff\xff\x7fab.", "unknown": b"\x80\x02\xff.",
            "list-key": b"\x80\x02}(]K\x01u.",
            "deep-key": b"\x80\x02})" + 200000 * b"\x85" + b"K\x01s.", "mark-kept": b"\x80\x02(q\x00.",
            "call-text": b"\x80\x02X\x01\x00\x00\x00a)R.", "storage": b"\x80\x02K\x01Q."}


def main():
    os.chdir(sys.argv[1])
    save_honest()
    save_hostile()
    for name, program in PROGRAMS.items():
        save(f"program-{name}.pt", None, program=program)
    with open("honest.pt", "rb") as file:
        whole = file.read()
    with open("cut.pt", "wb") as file:
        file.write(whole[:len(whole) // 2])
    with open("legacy.pt", "rb") as file:
        whole = file.read()
    with open("legacy-cut.pt", "wb") as file:
        file.write(whole[:-3])


if __name__ == "__main__":
    main()
