"""In place of nn.GRU, in the corners: names of arguments, parametrized weights, compiled packing, derivatives of other
kinds, and exceptions that name the argument."""
import unittest
import warnings

from torch_support import arguments, torch, version
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from minrnn.torch import MinGRU, MinLSTM, cell, scan, to_model


class Negative(nn.Module):
    def forward(self, x):
        return -x

    right_inverse = forward


class DropIn(unittest.TestCase):
    def test_names(self):
        x, h = torch.randn(5, 2, 3), torch.randn(1, 2, 4)
        for layer in MinGRU(3, 4), MinLSTM(3, 4):
            self.assertTrue(torch.equal(layer(input=x, hx=h)[0], layer(x, h)[0]))

    def test_weights_that_are_computed(self):
        layer = MinGRU(3, 4, num_layers=2, forget_bias=2.0)
        parametrizations.weight_norm(layer, "weight_l0")
        parametrize.register_parametrization(layer, "bias_l1", Negative())
        shapes = [[tuple(p.shape) for p in pair] for pair in layer.all_weights]
        self.assertEqual(shapes, [[(8, 3), (8,)], [(8, 4), (8,)]])
        layer.reset_parameters()
        for bias in layer.bias_l0, layer.bias_l1:
            self.assertTrue(torch.equal(bias[:4], torch.full((4,), -2.0)))
            self.assertLessEqual(bias[4:].abs().max().item(), 0.5)

    def test_packed_and_compiled(self):
        layer = MinGRU(3, 4)
        packed = pack_padded_sequence(torch.randn(5, 2, 3), [5, 3])
        net = torch.compile(lambda p: layer(p)[0].data.square().sum(), backend="eager")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = torch.autograd.grad(net(packed), list(layer.parameters()))
        want = torch.autograd.grad(layer(packed)[0].data.square().sum(), list(layer.parameters()))
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b)

    def test_broken_packing(self):
        data = torch.randn(10, 3)
        for sizes in [5, -5, 5, 5], [2, 3, 5], [5, 4], [5, 5, 0], []:
            with self.subTest(sizes=sizes), self.assertRaisesRegex(ValueError, "^input: the batch_sizes"):
                MinGRU(3, 4)(PackedSequence(data, torch.tensor(sizes, dtype=torch.int64)))

    def test_half_beneath_autocast(self):
        x = torch.randn(5, 2, 3).half()
        with torch.autocast("cpu", torch.bfloat16):
            for layer in MinGRU(3, 4), MinGRU(3, 4, bidirectional=True):
                self.assertEqual(layer(x)[0].dtype, torch.bfloat16)

    @unittest.skipIf(version() < (2, 6), "dynamic shapes of 2 need PyTorch 2.6")
    def test_exported_with_resets(self):
        layer, T = MinGRU(3, 4, bidirectional=True, batch_first=True), torch.export.Dim("T", min=2)
        x, reset = torch.randn(2, 6, 3), torch.zeros(2, 6, dtype=torch.bool)
        shapes = {"input": {1: T}, "reset": {1: T}}
        program = torch.export.export(layer, (x,), {"reset": reset}, dynamic_shapes=shapes)
        for length in 2, 3, 9:
            x, reset = torch.randn(2, length, 3), torch.rand(2, length) < 0.4
            torch.testing.assert_close(program.module()(x, reset=reset)[0], layer(x, reset=reset)[0])


class Derivatives(unittest.TestCase):
    def test_forward_mode_is_refused(self):
        x, weight, bias, *_ = arguments(grad=False)
        a = torch.rand(2, 5, 3, dtype=torch.float64)
        calls = [lambda v: cell(v, weight, bias)[0], lambda v: cell(x, weight, bias, h_init=v[0, 0, :1].expand(5))[0]]
        for call, at in [(c, x) for c in calls] + [(lambda v: scan(v, a)[0], a),
                                                        (lambda v: scan(a, a, v[:, 0])[1], a)]:
            for grad in True, False:
                with torch.set_grad_enabled(grad), forward_ad.dual_level():
                    with self.assertRaisesRegex(RuntimeError, "forward-mode|jvp|forward mode"):
                        call(forward_ad.make_dual(at, torch.ones_like(at)))
        frozen = MinGRU(4, 5, dtype=torch.float64).requires_grad_(False)
        with self.assertRaisesRegex(RuntimeError, "forward-mode derivatives of a cell are not there"):
            torch.autograd.functional.jacobian(lambda v: frozen(v)[0], x, strategy="forward-mode", vectorize=True)
        with forward_ad.dual_level():
            self.assertEqual(cell(x, weight, bias)[0].shape, (3, 7, 5))  # nothing to lose here

    def test_batches_of_gradients(self):
        x, weight, bias, *_ = arguments()
        wanted = torch.autograd.functional.jacobian(lambda v: cell(v, weight, bias)[0].sum((0, 2)), x)
        got = torch.autograd.functional.jacobian(lambda v: cell(v, weight, bias)[0].sum((0, 2)), x, vectorize=True)
        torch.testing.assert_close(got, wanted)
        h = cell(x, weight, bias)[0].sum((0, 2))
        eye = torch.eye(7, dtype=h.dtype)
        torch.testing.assert_close(torch.autograd.grad(h, x, eye, is_grads_batched=True)[0], wanted)


class Names(unittest.TestCase):
    """Every refusal begins with the name of the argument."""

    def refused(self, name, call, *args, **more):
        with self.subTest(name=name, args=str(args)[:60], more=str(more)[:60]):
            with self.assertRaisesRegex((TypeError, ValueError), rf"^{name}: "):
                call(*args, **more)

    def test_of_modules(self):
        for name, value in (("bias", "no"), ("bias", None), ("batch_first", "x"), ("bidirectional", 2),
                            ("signed", "no"), ("forget_bias", float("nan")), ("forget_bias", "x"),
                            ("forget_bias", (1.0, 2.0)), ("candidate", ["tanh"]), ("dtype", torch.complex64),
                            ("dtype", torch.int32)):
            self.refused(name, MinGRU, 3, 4, **{name: value})
        self.refused("normalize", MinLSTM, 3, 4, normalize="no")
        self.refused("layer", to_model, nn.GRU(3, 4))

    def test_of_inputs(self):
        layer, x, one = MinGRU(3, 4), torch.randn(5, 2, 3), torch.randn(5, 3)
        for reset in [[0]], False, 1, torch.zeros(5, dtype=torch.bool), torch.zeros(2, 5, dtype=torch.bool), \
                torch.zeros(5, 2), torch.zeros(5, 2, dtype=torch.int8), torch.zeros(5, 2, dtype=torch.int64), \
                torch.zeros(5, 2).bool().to_sparse():
            self.refused("reset", layer, x, reset=reset)
        for length in [5, 5], 3, torch.tensor([5]), torch.tensor([5.0, 5.0]), torch.tensor([5, 5]) * 1j, \
                torch.tensor([True, True]), torch.tensor([5, 5]).to_sparse(), torch.tensor([5, 5], device="meta"):
            self.refused("length", layer, x, length=length)
        for length in 3, torch.tensor([3, 3]):
            self.refused("length", layer, one, length=length)
        self.refused("reset", layer, one, reset=one.numpy() > 0)
        self.refused("h_0", layer, x, torch.randn(1, 2, 4).double())
        self.refused("h_0", layer, x, torch.randn(1, 2, 4).to_sparse())
        self.refused("h_0", layer.step, torch.randn(3), torch.tensor(1.0))
        self.refused("h_0", layer.step, torch.randn(2, 3), torch.randn(2, 4))
        double = MinGRU(3, 4, dtype=torch.float64)
        self.refused("h_0", double, x.double(), torch.randn(1, 2, 4).half())
        packed = pack_padded_sequence(x, torch.tensor([5, 3]))
        for state in torch.randn(1, 3, 4), torch.randn(1, 2, 4).double(), [0.0]:
            self.refused("h_0", layer, packed, state)
        self.refused("h_0", MinLSTM(3, 4), x, (3, 4))
        for token in torch.tensor(1.0), x, [1.0]:
            self.refused("input", layer.step, token)
        self.refused("input", layer, x.to_sparse())
        self.refused("input", MinGRU(3, 4, device="meta"), x)

    def test_of_functions(self):
        x, weight, bias, h0, h_init = arguments(grad=False, dtype=torch.float32)
        good = {"weight": weight, "bias": bias, "h0": h0, "h_init": h_init, "reset": torch.zeros(3, 7).bool(),
                "length": torch.tensor([7, 7, 7])}
        for name, value in good.items():
            self.refused(name, cell, x, **{**good, name: value.to_sparse()})
            self.refused(name, cell, x, **{**good, name: [1]})
        for name in "normalize", "signed":
            self.refused(name, cell, x, weight, **{name: "no"})
        self.refused("kind", cell, x, weight, kind=["mingru"])
        self.refused("candidate", cell, x, weight, candidate=["tanh"])
        a = torch.rand(5, 3)
        for name, value in (("h0", [0]), ("h0", torch.zeros(1, 3)), ("reset", [0]), ("reset", torch.zeros(1, 5).bool()),
                            ("length", 3), ("length", torch.tensor([1, 2])),
                            ("length", torch.tensor([1], device="meta"))):
            self.refused(name, scan, a, a, **{name: value})
        self.refused("a", scan, [1], a)
        self.refused("a", scan, a.half(), a)
        self.refused("a", scan, a, a.half())
        nested = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)])
        self.refused("x", cell, nested, weight)


if __name__ == "__main__":
    unittest.main()
