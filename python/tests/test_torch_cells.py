"""The scan and the cells on tensors: against a loop over time, and against finite differences."""
import unittest
from unittest import mock

import numpy as np
from torch_support import arguments, loop, masks, torch

import minrnn
from minrnn.torch import cell, scan

KINDS = [("mingru", False), ("minlstm", False), ("minlstm", True)]


def every_form():
    for kind, normalize in KINDS:
        for candidate in ("positive", "linear", "tanh"):
            for signed in (False, True):
                yield dict(kind=kind, normalize=normalize, candidate=candidate, signed=signed)


class Numbers(unittest.TestCase):
    def close(self, ours, theirs, tolerance, what):
        for name, a, b in zip(what, ours, theirs):
            self.assertTrue(bool(((a - b).abs() <= tolerance * (1 + b.abs())).all()), f"{name}: {a} is not {b}")

    def compare(self, dtype, tolerance, with_masks):
        for form in every_form():
            with self.subTest(**form):
                args = arguments(form["kind"], dtype=dtype)
                extra = masks() if with_masks else (None, None)
                exact = [x.detach().double().requires_grad_() for x in args]
                h, last = cell(*args, *extra, **form)
                h2, last2 = loop(*exact, *extra, **form)
                self.close((h, last), (h2, last2), tolerance, ("h", "last"))
                rng = torch.Generator().manual_seed(5)
                dh = torch.randn(h.shape, generator=rng, dtype=torch.float64)
                dlast = torch.randn(last.shape, generator=rng, dtype=torch.float64)
                ours = torch.autograd.grad((h, last), args, (dh.to(h.dtype), dlast.to(last.dtype)))
                theirs = torch.autograd.grad((h2, last2), exact, (dh, dlast), allow_unused=True, materialize_grads=True)
                self.close(ours, theirs, 10 * tolerance, ("dx", "dweight", "dbias", "dh0", "dh_init"))

    def test_float64_is_the_loop(self):
        self.compare(torch.float64, 1e-12, False)

    def test_float64_with_masks(self):
        self.compare(torch.float64, 1e-12, True)

    def test_float32_is_the_loop(self):
        self.compare(torch.float32, 1e-5, False)

    def test_float32_with_masks(self):
        self.compare(torch.float32, 1e-5, True)

    def test_gradcheck(self):
        for kind, normalize in KINDS:
            args, extra = arguments(kind), masks()
            self.assertTrue(torch.autograd.gradcheck(lambda *a: cell(*a, *extra, kind=kind, normalize=normalize), args))

    def test_gradcheck_of_the_scan(self):
        rng = torch.Generator().manual_seed(2)
        a, b = (torch.rand(3, 7, 4, generator=rng, dtype=torch.float64).requires_grad_() for _ in range(2))
        h0 = torch.rand(3, 4, generator=rng, dtype=torch.float64).requires_grad_()
        self.assertTrue(torch.autograd.gradcheck(lambda *x: scan(*x, *masks()), (a, b, h0)))
        self.assertTrue(torch.autograd.gradcheck(lambda a, b: scan(a, b), (a[0].detach().requires_grad_(),
                                                                          b[0].detach().requires_grad_())))

    def test_bfloat16_is_near(self):
        for kind, normalize in KINDS:
            x, weight, bias, h0, h_init = arguments(kind, dtype=torch.float32, T=40)
            low = x.detach().bfloat16().requires_grad_()
            h, last = cell(low, weight, bias, h0, h_init, kind=kind, normalize=normalize)
            self.assertEqual((h.dtype, last.dtype), (torch.bfloat16, torch.float32))
            exact = loop(x.double(), weight.double(), bias.double(), h0.double(), h_init.double(), kind=kind,
                         normalize=normalize)
            self.close((h.double(), last.double()), exact, 0.06, ("h", "last"))
            h.float().sum().backward()
            self.assertEqual((low.grad.dtype, weight.grad.dtype), (torch.bfloat16, torch.float32))


class Shapes(unittest.TestCase):
    def test_one_token(self):
        args = arguments(T=1)
        self.assertTrue(torch.allclose(cell(*args)[0], loop(*args)[0], rtol=0, atol=1e-13))
        self.assertTrue(torch.equal(cell(*args)[0][:, 0], cell(*args)[1]))

    def test_empty(self):
        for B, T in ((0, 4), (3, 0), (0, 0)):
            args = arguments(B=B, T=T)
            h, last = cell(*args)
            self.assertEqual((tuple(h.shape), tuple(last.shape)), ((B, T, 5), (B, 5)))
            self.assertTrue(torch.equal(last, args[3]))
            (h.sum() + 2 * last.sum()).backward()
            self.assertTrue((args[3].grad == 2).all() and (args[1].grad == 0).all())
            h, last = scan(args[0], args[0], torch.ones(B, 4, dtype=torch.float64))
            self.assertEqual((tuple(h.shape), float(last.sum())), ((B, T, 4), 4.0 * B))

    def test_not_contiguous(self):
        args = arguments(dtype=torch.float32)
        spread = [x.detach().unsqueeze(-1).expand(*x.shape, 2).clone()[..., 0].requires_grad_() for x in args]
        self.assertFalse(any(x.is_contiguous() for x in spread))
        reset, length = masks()
        plain = cell(*args, reset, length)
        odd = cell(*spread, reset.t().contiguous().t(), length.repeat_interleave(2)[::2])
        self.assertTrue(torch.equal(plain[0], odd[0]) and torch.equal(plain[1], odd[1]))
        dh = torch.ones(5, 3, 7).permute(1, 2, 0) * torch.arange(5.0)
        for a, b in zip(torch.autograd.grad(plain[0], args, dh.contiguous()), torch.autograd.grad(odd[0], spread, dh)):
            self.assertTrue(torch.equal(a, b))

    def test_inputs_are_left_alone(self):
        args = arguments(dtype=torch.float32)
        before = [x.detach().clone() for x in args]
        cell(*args)[0].sum().backward()
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(args, before)))


class Foreign:
    """An array of another library, on a GPU as far as DLPack tells."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        raise BufferError("this is a test")


class OtherLibraries(unittest.TestCase):
    def test_arrays_on_a_gpu_become_tensors(self):
        x, weight, bias, h0, _ = (t.detach() for t in arguments(dtype=torch.float32))
        reset, length = masks()
        far = [Foreign(t) for t in (x, weight, bias, h0)]
        with mock.patch("torch.from_dlpack", lambda x: x.tensor):
            h, last = minrnn.mingru(*far, reset=Foreign(reset), length=Foreign(length))
            whole = minrnn.scan(Foreign(x), Foreign(x), h0=Foreign(x[:, 0]))
        want = cell(x, weight, bias, h0, None, reset, length)
        self.assertTrue(torch.equal(h, want[0]) and torch.equal(last, want[1]))
        self.assertTrue(torch.equal(whole, scan(x, x, x[:, 0])[0]))

    def test_arrays_on_a_cpu_become_numpy(self):
        class Near(Foreign):
            def __dlpack_device__(self):
                return 1, 0

            def __dlpack__(self, **more):
                return self.tensor.__dlpack__(**more)
        x = torch.rand(2, 3, 4)
        got = minrnn.scan(Near(x), Near(x))
        self.assertIsInstance(got, np.ndarray)
        np.testing.assert_array_equal(got, scan(x, x)[0].numpy())


    def test_what_cannot_be_seen_is_named(self):
        x = torch.rand(2, 3, 4, requires_grad=True)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^b: .*gradient"):
            minrnn.scan_vjp(x, x)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^x: this is a test"):
            minrnn.mingru_vjp(Foreign(x), np.ones((8, 4)))


class Graphs(unittest.TestCase):
    """What autograd may ask for."""

    def test_a_graph_kept_gives_the_same_twice(self):
        args = arguments(dtype=torch.float32)
        h, last = cell(*args)
        once = torch.autograd.grad(h.sum() + last.sum(), args, retain_graph=True)
        total = h.sum() + last.sum()
        again = torch.autograd.grad(total, args, retain_graph=True)
        third = torch.autograd.grad(total, args)
        for a, b, c in zip(once, again, third):
            self.assertTrue(torch.equal(a, b) and torch.equal(b, c))
        with self.assertRaisesRegex(RuntimeError, "second time"):
            torch.autograd.grad(total, args)

    def test_a_layer_used_twice(self):
        x, weight, bias, _, _ = arguments(D=5, H=5)
        twice = [t.detach().clone().requires_grad_() for t in (x, weight, bias)]
        y = cell(cell(x, weight, bias)[0], weight, bias)[0]
        z = loop(loop(*twice)[0], *twice[1:])[0]
        for a, b in zip(torch.autograd.grad(y.square().sum(), (x, weight, bias)),
                        torch.autograd.grad(z.square().sum(), twice)):
            self.assertTrue(torch.allclose(a, b, rtol=1e-10, atol=1e-12))

    def test_only_the_last_state_is_used(self):
        args = arguments()
        ours = torch.autograd.grad(cell(*args)[1].sum(), args[:4])
        theirs = torch.autograd.grad(loop(*args)[1].sum(), args[:4])
        self.assertTrue(all(torch.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(ours, theirs)))

    def test_many_gradients_at_once(self):
        args = arguments(dtype=torch.float32)
        h, _ = cell(*args)
        dh = torch.randn(4, *h.shape, generator=torch.Generator().manual_seed(3))
        batched = torch.autograd.grad(h, args[:3], dh, is_grads_batched=True, retain_graph=True)
        for i in range(4):
            for a, b in zip(batched, torch.autograd.grad(h, args[:3], dh[i], retain_graph=True)):
                self.assertTrue(torch.equal(a[i], b))

    def test_a_second_derivative_is_refused_by_name(self):
        args = arguments()
        first = torch.autograd.grad(cell(*args)[0].square().sum(), args[1], create_graph=True)[0]
        with self.assertRaisesRegex(RuntimeError, "minrnn: the second derivative of a cell"):
            first.sum().backward()
        a = torch.rand(1, 3, 2, requires_grad=True)
        first = torch.autograd.grad(scan(a, a)[0].square().sum(), a, create_graph=True)[0]
        with self.assertRaisesRegex(RuntimeError, "minrnn: the second derivative of a scan"):
            first.sum().backward()

    def test_checkpointing(self):
        from torch.utils.checkpoint import checkpoint
        args = arguments(dtype=torch.float32)
        plain = torch.autograd.grad(cell(*args)[0].sum(), args)
        again = torch.autograd.grad(checkpoint(lambda *a: cell(*a)[0], *args, use_reentrant=False).sum(), args)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, again)))


class Refusals(unittest.TestCase):
    def refused(self, error, pattern, call, *args, **kwargs):
        with self.assertRaisesRegex(error, pattern):
            call(*args, **kwargs)

    def test_shapes(self):
        x, weight, bias, h0, h_init = arguments(dtype=torch.float32)
        self.refused(ValueError, "^x: has 2 dimensions", cell, x[0], weight)
        self.refused(ValueError, "^weight: has the shape", cell, x, weight[:9])
        self.refused(ValueError, "^bias: has the shape", cell, x, weight, bias[:4])
        self.refused(ValueError, "^h0: has the shape", cell, x, weight, bias, h0[:2])
        self.refused(ValueError, "^h_init: has the shape", cell, x, weight, bias, h0, h_init[:1])
        self.refused(ValueError, "^reset: has the shape", cell, x, weight, reset=torch.zeros(3, 6).bool())
        self.refused(ValueError, "^length: has the shape", cell, x, weight, length=torch.zeros(2).int())
        self.refused(ValueError, "^a: has the shape", scan, x, x[:, :3])
        self.refused(ValueError, "^b: has 1 dimensions", scan, x[0, 0], x[0, 0])

    def test_dtypes(self):
        x, weight, bias, h0, _ = arguments(dtype=torch.float32)
        self.refused(TypeError, "^x: is torch.int64", cell, x.long(), weight)
        self.refused(TypeError, "^weight: is torch.float64", cell, x, weight.double())
        self.refused(TypeError, "^h0: is torch.float64", cell, x, weight, bias, h0.double())
        self.refused(TypeError, "^reset: is torch.float32", cell, x, weight, reset=torch.zeros(3, 7))
        self.refused(TypeError, "^length: is torch.float32", cell, x, weight, length=torch.zeros(3))
        self.refused(TypeError, "^a: is torch.float64", scan, x.double(), x)
        self.refused(TypeError, "^x: must be a tensor", cell, [1.0], weight)
        self.refused(TypeError, "^weight: must be a tensor, not NoneType", cell, x, None)

    def test_devices(self):
        x, weight, _, _, _ = arguments(dtype=torch.float32)
        self.refused(ValueError, "^weight: is on meta, and the input on cpu", cell, x, weight.to("meta"))
        self.refused(ValueError, "^x: is on meta", cell, x.to("meta"), weight)

    def test_choices(self):
        x, weight, _, _, _ = arguments(dtype=torch.float32)
        self.refused(ValueError, "^kind: is 'gru'", cell, x, weight, kind="gru")
        self.refused(ValueError, "^candidate: is 'relu'", cell, x, weight, candidate="relu")


NAMES = ("x", "weight", "bias", "h0", "h_init")


def scan_arguments(dtype=torch.float64):
    """a, b, h0."""
    rng = torch.Generator().manual_seed(3)
    return [torch.rand(*shape, generator=rng, dtype=torch.float64).to(dtype).requires_grad_()
            for shape in ((3, 7, 4), (3, 7, 4), (3, 4))]


class Alone(unittest.TestCase):
    """Gradients of one argument while all others are frozen, from each output alone."""

    def same(self, run, args, names):
        for pick in (0, 1):
            for through in (False, True):  # through: a graph of the backward, too, so that it takes the other way
                want = torch.autograd.grad(run(*args)[pick].square().sum(), args)
                for i, name in enumerate(names):
                    some = [x if i == k else x.detach() for k, x in enumerate(args)]
                    got = torch.autograd.grad(run(*some)[pick].square().sum(), args[i], create_graph=through)[0]
                    self.assertTrue(torch.equal(got, want[i]), f"{name} from output {pick}")
                    self.assertGreater(float(got.detach().abs().sum()), 0, name)

    def test_cell(self):
        for kind in "mingru", "minlstm":
            extra = masks()
            self.same(lambda *a: cell(*a, *extra, kind=kind), arguments(kind, dtype=torch.float32), NAMES)

    def test_scan(self):
        reset, length = masks()
        self.same(lambda *a: scan(*a, reset, length), scan_arguments(torch.float32), "a b h0".split())

    def test_the_last_state_of_a_scan(self):
        args, extra = scan_arguments(), masks()
        self.assertTrue(torch.autograd.gradcheck(lambda *a: scan(*a, *extra)[1], args))


class Layouts(unittest.TestCase):
    def spread(self, x):
        """The same numbers, every second of a room twice as wide."""
        if x.is_floating_point():
            return x.detach().unsqueeze(-1).expand(*x.shape, 2).clone()[..., 0].requires_grad_()
        return x.unsqueeze(-1).expand(*x.shape, 2).contiguous()[..., 0]

    def test_a_scan_that_is_not_contiguous(self):
        args, extra = scan_arguments(torch.float32), masks()
        odd, odd_extra = [self.spread(x) for x in args], [self.spread(x) for x in extra]
        dh, dlast = torch.randn(4, 7, 3).permute(2, 1, 0), torch.randn(4, 3).t()
        plain, other = scan(*args, *extra), scan(*odd, *odd_extra)
        self.assertTrue(torch.equal(plain[0], other[0]) and torch.equal(plain[1], other[1]))
        want = torch.autograd.grad(plain, args, (dh.contiguous(), dlast.contiguous()))
        for a, b in zip(want, torch.autograd.grad(other, odd, (dh, dlast))):
            self.assertTrue(torch.equal(a, b))

    def test_a_last_gradient_that_is_not_contiguous(self):
        args, dlast = arguments(dtype=torch.float32), torch.randn(5, 3).t()
        want = torch.autograd.grad(cell(*args)[1], args, dlast.contiguous())
        for a, b in zip(want, torch.autograd.grad(cell(*args)[1], args, dlast)):
            self.assertTrue(torch.equal(a, b))

    def test_one_sequence(self):
        (a, b, h0), (reset, length) = scan_arguments(), masks()
        want, got = scan(a, b, h0, reset, length), scan(a[1], b[1], h0[1], reset[1], length[1])
        self.assertEqual((got[0].shape, got[1].shape), ((7, 4), (4,)))
        self.assertTrue(torch.equal(got[0], want[0][1]) and torch.equal(got[1], want[1][1]))
        free = scan(a[1], b[1], None, reset[1])
        self.assertTrue(torch.equal(free[0], scan(a[1:2], b[1:2], None, reset[1:2])[0][0]))

    def test_float16_is_given_back(self):
        args = scan_arguments(torch.float16)
        h, last = scan(*args)
        self.assertEqual((h.dtype, last.dtype), (torch.float16, torch.float32))
        self.assertEqual([g.dtype for g in torch.autograd.grad(h.float().sum() + last.sum(), args)],
                         [torch.float16] * 3)

    def test_what_a_hook_moves(self):
        """Saved tensors may come back at any address."""
        def moved(x):
            room = torch.empty(x.numel() * x.element_size() + 8, dtype=torch.uint8)
            at = room[8:].view(x.dtype).view(x.shape) if x.element_size() <= 8 and x.numel() else x.clone()
            return at.copy_(x)
        for dtype in torch.float32, torch.float64:
            args = arguments(dtype=dtype)
            want = torch.autograd.grad(cell(*args)[0].sum(), args)
            with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), moved):
                h = cell(*args)[0]
            for a, b in zip(torch.autograd.grad(h.sum(), args), want):
                self.assertTrue(torch.equal(a, b))


class Nothing(unittest.TestCase):
    def test_states_and_gradients(self):
        """No tokens: the state goes through, and its gradient back; without a state it is 0."""
        for B, T in ((3, 0), (0, 4), (0, 0)):
            room = [torch.full((3, 5), 9.0) for _ in range(50)]  # what is not written holds something
            del room
            args = arguments(B=B, T=T, dtype=torch.float32)
            self.assertTrue((cell(*args[:3])[1] == 0).all())
            self.assertTrue((scan(args[0], args[0])[1] == 0).all())
            a, h0 = torch.zeros(B, T, 5, requires_grad=True), args[3]
            h, last = scan(a, a, h0)
            self.assertTrue(torch.equal(last, h0))
            da, dh0 = torch.autograd.grad(h.sum() + 3 * last.sum(), (a, h0))
            self.assertEqual(da.shape, a.shape)
            self.assertTrue((dh0 == 3).all())
            h, last = scan(a, a, h0)
            self.assertTrue((torch.autograd.grad(h.sum(), h0)[0] == 0).all())
            h, last = cell(*args)
            self.assertTrue(all((g == 0).all() for g in torch.autograd.grad(h.sum(), args)))


class LowPrecision(unittest.TestCase):
    def test_bfloat16_gradients_are_near(self):
        for kind in "mingru", "minlstm":
            args, extra = arguments(kind, dtype=torch.float32), masks()
            low = [args[0].detach().bfloat16().requires_grad_(), *(x.detach().requires_grad_() for x in args[1:])]
            h, last = cell(*low, *extra, kind=kind)
            got = torch.autograd.grad(h.float().sum() + last.sum(), low)
            h, last = loop(*args, *extra, kind=kind)
            for name, a, b in zip(NAMES, got, torch.autograd.grad(h.sum() + last.sum(), args)):
                self.assertTrue(bool(((a.float() - b).abs() <= 0.05 * (1 + b.abs().max())).all()), name)


class RefusedDtypes(unittest.TestCase):
    def test_dtypes_and_sizes(self):
        x, weight, bias, h0, _ = arguments(grad=False)
        for half in torch.float16, torch.bfloat16:  # beside float64 nothing is rounded, or read as what it is not
            with self.assertRaisesRegex(TypeError, "^weight: is torch..*float16, where torch.float64"):
                cell(x, weight.to(half))
            with self.assertRaisesRegex(TypeError, "^h0: is torch"):
                cell(x, weight, bias, h0.to(half))
        with self.assertRaisesRegex(TypeError, "^length: is torch.bool"):
            cell(x, weight, length=torch.ones(3, dtype=torch.bool))
        with self.assertRaisesRegex(ValueError, "^weight: .* one feature or more"):
            cell(x[..., :0], weight[:, :0])


if __name__ == "__main__":
    unittest.main()
