"""Eager calls that leave PyTorch's dispatcher out, what keeps them from it, and gradients that nobody needs."""
import unittest
import unittest.mock

from torch_support import arguments, loop, torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from minrnn.torch import cell, ops, scan


# Older versions do not tell whether a graph is kept, so their backward never consumes what the forward kept.
TELLS = hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph")
BACKWARD = "cell_backward_" if TELLS else "cell_backward"


class Seen(TorchDispatchMode):
    """Notes minrnn's operators that pass by."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "minrnn":
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Wrapper(torch.Tensor):
    """A subclass without memory of its own."""
    seen = 0

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.seen += func.namespace == "minrnn"
        return func(*(x.inner if isinstance(x, cls) else x for x in args), **(kwargs or {}))


class Direct(unittest.TestCase):
    @unittest.skipUnless(ops.may_be_direct, "this PyTorch does not tell a tensor's keys fast enough")
    def test_what_keeps_calls_from_it(self):
        x = torch.ones(2, 3)
        self.assertTrue(ops.direct(x, None, torch.nn.Parameter(x)))
        self.assertFalse(ops.direct(x, torch._neg_view(x)))
        self.assertFalse(ops.direct(x, Wrapper(x)))
        with Seen():
            self.assertFalse(ops.direct(x))
        with torch.profiler.profile():
            self.assertFalse(ops.direct(x))
        self.assertTrue(ops.direct(x))

    def test_same_bits_either_way(self):
        args = arguments(dtype=torch.float32)
        plain = torch.autograd.grad(cell(*args)[0].square().sum(), args)
        with Seen() as seen:
            watched = torch.autograd.grad(cell(*args)[0].square().sum(), args)
        self.assertEqual(seen.names, ["cell.default", f"{BACKWARD}.default"])
        for a, b in zip(plain, watched):
            self.assertTrue(torch.equal(a, b))

    @unittest.skipUnless(ops.may_be_direct, "this PyTorch does not tell a tensor's keys fast enough")
    def test_same_bits_without_gradients(self):
        args = arguments(dtype=torch.float32, grad=False)
        with torch.no_grad(), unittest.mock.patch.object(ops, "cell") as operator:
            plain = cell(*args)
        operator.assert_not_called()
        with Seen() as seen:
            watched = cell(*args)
        self.assertEqual(seen.names, ["cell.default"])
        for a, b, c in zip(plain, watched, cell(*(x.clone().requires_grad_() for x in args))):
            self.assertTrue(torch.equal(a, b) and torch.equal(a, c))

    def test_profiler_shows_the_operators(self):
        args = arguments(dtype=torch.float32)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            cell(*args)[0].sum().backward()
        names = {event.name for event in profile.events()}
        self.assertLessEqual({"minrnn::cell", f"minrnn::{BACKWARD}"}, names)

    def test_views_that_negate(self):
        x, weight, bias, *_ = arguments(dtype=torch.float32, grad=False)
        negative = torch._neg_view(x)  # as in torch.imag(z.conj())
        self.assertTrue(negative.is_neg())
        weight.requires_grad_()
        got, _ = cell(negative, weight, bias)
        torch.testing.assert_close(got, loop(-x, weight, bias)[0], rtol=1e-5, atol=1e-5)
        gradient = torch._neg_view(torch.ones_like(got))
        got = torch.autograd.grad(got, weight, gradient)[0]
        want = torch.autograd.grad(loop(-x, weight, bias)[0], weight, -torch.ones_like(gradient))[0]
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)

    def test_subclasses(self):
        x, weight, bias, *_ = arguments(dtype=torch.float32)
        Wrapper.seen = 0
        h, _ = cell(Wrapper(x.detach()), weight, bias)
        self.assertEqual(Wrapper.seen, 1)
        self.assertTrue(torch.equal(h, cell(x, weight, bias)[0]))


class Needless(unittest.TestCase):
    """A first layer's input needs no gradient; the others are the same without it."""

    def test_input(self):
        for kind in ("mingru", "minlstm"):
            x, *rest = arguments(kind, dtype=torch.float32)
            want = torch.autograd.grad(cell(x, *rest, kind=kind)[0].square().sum(), [x, *rest])
            got = torch.autograd.grad(cell(x.detach(), *rest, kind=kind)[0].square().sum(), rest)
            for a, b in zip(got, want[1:]):
                self.assertTrue(torch.equal(a, b))

    def test_operator(self):
        x, weight, bias, *_ = arguments(dtype=torch.float32, grad=False)
        how = (0, 0, True, False)
        h, _, saved = ops.cell(x, weight, bias, None, None, None, None, *how, True)
        for needed in (True, False):
            dx = ops.cell_backward(x, weight, bias, None, None, None, None, h, saved, h, None, *how, needed)[0]
            self.assertEqual(dx.shape, x.shape if needed else (0,))

    def test_compiled(self):
        x, weight, bias, *_ = arguments(dtype=torch.float32)
        x = x.detach()
        run = torch.compile(lambda w: cell(x, w, bias)[0].square().sum(), fullgraph=True, backend="aot_eager")
        got = torch.autograd.grad(run(weight), weight)[0]
        self.assertTrue(torch.equal(got, torch.autograd.grad(cell(x, weight, bias)[0].square().sum(), weight)[0]))

    def test_nothing_to_write_over(self):
        """Gradients are new each time: none grows by what an earlier call left."""
        args = arguments(dtype=torch.float32)
        first = torch.autograd.grad(cell(*args)[0].sum(), args)
        for _ in range(3):
            for a, b in zip(torch.autograd.grad(cell(*args)[0].sum(), args), first):
                self.assertTrue(torch.equal(a, b))


X = torch.ones(1)  # made beneath no mode


class Corners(unittest.TestCase):
    def test_tracing_keeps_calls_from_it(self):
        seen = []
        torch.jit.trace(lambda x: (seen.append(ops.direct(x)), x + 1)[1], torch.ones(2), check_trace=False)
        self.assertTrue(seen and not any(seen))

    def test_a_last_gradient_that_negates(self):
        args = arguments(dtype=torch.float32)
        (h, last), (h2, last2) = cell(*args), cell(*args)
        negative, ones = torch._neg_view(torch.ones_like(last)), torch.ones_like(h)
        got = torch.autograd.grad((h, last), args, (ones, negative))
        for a, b in zip(got, torch.autograd.grad((h2, last2), args, (ones, negative.resolve_neg()))):
            self.assertTrue(torch.equal(a, b))

    def test_an_input_that_negates_beside_a_plain_gradient(self):
        x, weight, bias, *_ = arguments(dtype=torch.float32, grad=False)
        weight.requires_grad_()
        got, want = (torch.autograd.grad(cell(v, weight, bias)[0].sum(), weight)[0] for v in (torch._neg_view(x), -x))
        self.assertTrue(torch.equal(got, want))

    def test_what_is_plain_does_not_depend_on_the_first_call(self):
        with unittest.mock.patch.object(ops, "_is_plain", {}), torch.inference_mode():
            self.assertTrue(ops.plain(torch.empty(1)))
            self.assertTrue(ops.plain(X))
        with unittest.mock.patch.object(ops, "_is_plain", {}):
            with FakeTensorMode():
                x, weight = torch.ones(2, 3, 4), torch.ones(10, 4, requires_grad=True)
                cell(x, weight)[0].sum().backward()
            self.assertFalse(ops.plain(x))
            self.assertIsInstance(cell(x, weight)[0], FakeTensor)

    def test_saved_tensors_that_come_back_changed(self):
        args = arguments(dtype=torch.float32)
        for change in (lambda x: x.bfloat16() if x.is_floating_point() else x,), (lambda x: x[:1],):
            with torch.autograd.graph.saved_tensors_hooks(lambda x: x, *change):
                (h, _), (s, _) = cell(*args), scan(args[0], args[0])
            for got in h, s:
                with self.assertRaisesRegex(ValueError, "is needed$"):
                    got.sum().backward()

    def test_each_argument_that_negates(self):
        args = arguments(dtype=torch.float32, grad=False)
        for i in range(len(args)):
            negative, copied = ([f(a) if i == k else a for k, a in enumerate(args)]
                                for f in (torch._neg_view, torch.neg))
            self.assertTrue(torch.equal(cell(*negative)[0], cell(*copied)[0]), i)

    def test_nothing_is_kept_without_gradients(self):
        args = arguments(dtype=torch.float32)
        with torch.no_grad(), unittest.mock.patch.object(ops, "_new_saved") as kept:
            cell(*args)
        kept.assert_not_called()

    def test_the_end_of_saved_is_zero(self):
        for T in 7, 2001:
            x, weight, *_ = arguments(T=T, H=5, dtype=torch.float32, grad=False)
            numbers = 3 * T * 5 * 2 * 4
            size = (numbers + 63) // 64 * 64
            self.assertGreater(size, numbers)
            for _ in range(5):
                full = [torch.full((size,), 255, dtype=torch.uint8) for _ in range(8)]
                del full
                saved = ops.cell(x, weight, None, None, None, None, None, 0, 0, True, False, True)[2]
                self.assertEqual((saved.numel(), int(saved[numbers:].max())), (size, 0))


if __name__ == "__main__":
    unittest.main()
