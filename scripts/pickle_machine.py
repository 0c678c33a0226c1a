"""Follows the pickle of a state dict instruction by instruction: what it describes comes out, and nothing is run.

Only what torch.save needs for tensors, dicts, lists and plain values is known; Refused says what else there was."""
import dataclasses
import math
import pickletools
import re

# storage class of PyTorch → dtype of safetensors, bytes, how a memoryview names a number of that size
STORAGES = {"FloatStorage": ("F32", 4, "I"), "DoubleStorage": ("F64", 8, "Q"), "HalfStorage": ("F16", 2, "H"),
            "BFloat16Storage": ("BF16", 2, "H"), "LongStorage": ("I64", 8, "Q"), "IntStorage": ("I32", 4, "I"),
            "ShortStorage": ("I16", 2, "H"), "CharStorage": ("I8", 1, "B"), "ByteStorage": ("U8", 1, "B"),
            "BoolStorage": ("BOOL", 1, "B")}
# the authors' checkpoints are such a dict of dicts
DICTS = {"collections.OrderedDict", "attrdict.dictionary.AttrDict", "attrdict.AttrDict", "attrdict.default.AttrDefault"}
# names that may occur, and stand for nothing here
INERT = re.compile(r"(__builtin__|builtins)\.(tuple|list|dict|int|float|str|bool)|torch\.(float|bfloat|int|uint)[0-9]+|"
                   r"torch\.(bool|device|Size)")


class Refused(Exception):
    """One line for the user."""


def require(condition, message):
    if not condition:
        raise Refused(message)


@dataclasses.dataclass(frozen=True)
class Global:
    name: str


@dataclasses.dataclass(frozen=True)
class Storage:
    dtype: str
    bytes: int
    view: str
    key: str
    count: int


@dataclasses.dataclass(frozen=True)
class Tensor:
    storage: Storage
    offset: int
    shape: tuple
    strides: tuple

    @property
    def count(self):
        return math.prod(self.shape)

    @property
    def size(self):
        return self.count * self.storage.bytes


# ---- what a pickle may call

def is_count(value):
    return type(value) is int and 0 <= value < 1 << 48


def rebuild_tensor(storage, offset, shape, strides, *_):
    require(isinstance(storage, Storage), "a tensor without a storage")
    for values, what in ((shape, "shape"), (strides, "strides")):
        require(type(values) is tuple and len(values) <= 64 and all(type(value) is int for value in values),
                f"a tensor whose {what} is no list of numbers")
        require(all(value >= 0 for value in values), f"a tensor with negative {what}")
        require(all(is_count(value) for value in values), f"a tensor whose {what} is too large")
    require(len(shape) == len(strides) and is_count(offset), "a tensor whose shape, strides and offset do not agree")
    if 0 not in shape:
        last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides))
        require(last < storage.count, f"a tensor of shape {list(shape)} reaches beyond its storage of {storage.count}")
    return Tensor(storage, offset, shape, strides)


def rebuild_parameter(data, *_):
    require(isinstance(data, Tensor), "a parameter that is no tensor")
    return data


def plain_dict(*arguments):
    """OrderedDict(), or OrderedDict([[key, value], …]) as Python 2 wrote it."""
    result = {}
    for pair in arguments[0] if arguments else []:
        require(type(pair) in (list, tuple) and len(pair) == 2, "a dict that is made of something else than pairs")
        put(result, *pair)
    return result


def put(target, key, value):
    # a key that is a deep tuple could exhaust the stack when it is hashed
    require(type(target) is dict and type(key) in (str, int, float, bool, type(None)), "a dict with unusual keys")
    target[key] = value


CALLS = {"torch._utils._rebuild_tensor_v2": rebuild_tensor, "torch._utils._rebuild_tensor": rebuild_tensor,
         "torch._utils._rebuild_parameter": rebuild_parameter, **{name: plain_dict for name in DICTS},
         "torch.device": lambda *_: None, "torch.Size": lambda values=(), *_: values}


def allowed(module, name):
    full = f"{module}.{name}"
    known = full in CALLS or INERT.fullmatch(full) or module in ("torch", "torch.cuda") and name in STORAGES
    require(known, f"names {ascii(full[:200])[1:-1]}, which is no part of a state dict "
            "(save model.state_dict() rather than the model)")
    return Global(full)


def storage_of(pid):
    require(type(pid) is tuple and len(pid) in (5, 6) and pid[0] == "storage" and isinstance(pid[1], Global),
            "a reference that is no storage")
    name = pid[1].name.rpartition(".")[2]
    require(name in STORAGES, f"a storage of class {pid[1].name}")
    require(type(pid[2]) is str and is_count(pid[4]), "a storage without a key and a size")
    require(len(pid) == 5 or pid[5] is None, "a storage that is a view of another one; save it with a newer PyTorch")
    return Storage(*STORAGES[name], pid[2], pid[4])


# ---- the instructions of pickle

MARK = object()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
LITERALS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
            "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
            "BINBYTES8"}


class Machine:
    """Follows one pickle; the file is left behind its last byte."""

    def __init__(self):
        self.stack, self.memo = [], {}

    def run(self, file):
        for code, argument, _ in pickletools.genops(file):
            name = code.name
            if name == "STOP":
                return self.pop()
            if name in LITERALS:
                self.stack.append(argument)
            elif name in CONSTANTS:
                self.stack.append(CONSTANTS[name])
            elif hasattr(self, f"do_{name.lower()}"):
                getattr(self, f"do_{name.lower()}")(argument)
            elif name not in ("PROTO", "FRAME"):
                raise Refused(f"the instruction {name}, which no state dict needs")
        raise Refused("a pickle without an end")

    def pop(self):
        require(self.stack and self.stack[-1] is not MARK, "a pickle that takes more than it has")
        return self.stack.pop()

    def top(self):
        require(self.stack, "a pickle that takes more than it has")
        return self.stack[-1]

    def to_mark(self):
        items = []
        while self.stack and self.stack[-1] is not MARK:
            items.append(self.stack.pop())
        require(self.stack, "a pickle without a mark")
        self.stack.pop()
        return items[::-1]

    def pairs(self, items):
        require(len(items) % 2 == 0, "a dict with a key and no value")
        return zip(items[::2], items[1::2])

    def do_mark(self, _):
        self.stack.append(MARK)

    def do_pop(self, _):
        self.top()
        self.stack.pop()

    def do_pop_mark(self, _):
        self.to_mark()

    def do_dup(self, _):
        self.stack.append(self.top())

    def do_empty_list(self, _):
        self.stack.append([])

    def do_list(self, _):
        self.stack.append(self.to_mark())

    def do_append(self, _):
        value = self.pop()
        self.extend([value])

    def do_appends(self, _):
        self.extend(self.to_mark())

    def extend(self, values):
        require(type(self.top()) is list, "values appended to something else than a list")
        self.top().extend(values)

    def do_empty_dict(self, _):
        self.stack.append({})

    def do_dict(self, _):
        self.stack.append(plain_dict(list(self.pairs(self.to_mark()))))

    def do_setitem(self, _):
        value, key = self.pop(), self.pop()
        put(self.top(), key, value)

    def do_setitems(self, _):
        items = self.to_mark()
        for key, value in self.pairs(items):
            put(self.top(), key, value)

    def do_tuple(self, _):
        self.stack.append(tuple(self.to_mark()))

    def do_tuple1(self, _):
        self.stack.append((self.pop(),))

    def do_tuple2(self, _):
        second, first = self.pop(), self.pop()
        self.stack.append((first, second))

    def do_tuple3(self, _):
        third, second, first = self.pop(), self.pop(), self.pop()
        self.stack.append((first, second, third))

    def do_get(self, index):
        require(index in self.memo, "a pickle that asks for what it did not keep")
        self.stack.append(self.memo[index])

    def do_put(self, index):
        require(self.top() is not MARK, "a pickle that keeps a mark")
        self.memo[index] = self.top()

    do_binget = do_long_binget = do_get
    do_binput = do_long_binput = do_put

    def do_memoize(self, _):
        self.do_put(len(self.memo))

    def do_global(self, names):
        module, _, name = names.partition(" ")
        self.stack.append(allowed(module, name))

    def do_stack_global(self, _):
        name, module = self.pop(), self.pop()
        require(type(name) is str and type(module) is str, "a name that is no text")
        self.stack.append(allowed(module, name))

    def do_reduce(self, _):
        arguments, function = self.pop(), self.pop()
        require(isinstance(function, Global) and function.name in CALLS and type(arguments) is tuple,
                f"a call of {getattr(function, 'name', 'something that has no name')}")
        try:
            self.stack.append(CALLS[function.name](*arguments))
        except TypeError as error:
            raise Refused(f"a call of {function.name} with other arguments than PyTorch's") from error

    def do_newobj(self, _):
        arguments, function = self.pop(), self.pop()
        require(isinstance(function, Global) and function.name in DICTS and arguments == (),
                f"a new {getattr(function, 'name', 'something that has no name')}")
        self.stack.append({})

    def do_build(self, _):
        """The attributes of a dict: nothing in them is a weight."""
        self.pop()
        require(type(self.top()) is dict, "attributes of something else than a dict")

    def do_binpersid(self, _):
        self.stack.append(storage_of(self.pop()))
