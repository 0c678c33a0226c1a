"""Padding, lengths and resets at the ends of rows: what is there must not be read, in either direction of time."""
import unittest

from torch_support import arguments, candidate_of, loop, torch

from minrnn.torch import MinGRU, MinLSTM, cell

LENGTHS = torch.tensor([2, 0, 5])


def module(kind=MinGRU, **more):
    torch.manual_seed(3)
    return kind(3, 4, batch_first=True, **more)


def gradients(layer, x, **more):
    """Output, states, and the gradients of the parameters and of x."""
    x = x.clone().requires_grad_()
    output, states = layer(x, **more)
    last = states if isinstance(states, torch.Tensor) else states[0]
    loss = output.square().sum() + last.square().sum()
    return [output.detach(), last.detach(), *torch.autograd.grad(loss, [*layer.parameters(), x])]


class Padding(unittest.TestCase):
    def same(self, ours, theirs):
        for a, b in zip(ours, theirs, strict=True):
            self.assertTrue(torch.equal(a, b), (a, b))

    def test_what_is_there_is_not_read(self):
        x = torch.randn(3, 5, 3)
        for spoiled in float("nan"), float("inf"):
            dirty = x.clone()
            for row, length in enumerate(LENGTHS):
                dirty[row, length:] = spoiled
                x[row, length:] = 0
            for kind in MinGRU, MinLSTM:
                for more in {}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True}:
                    layer = module(kind, **more)
                    self.same(gradients(layer, dirty, length=LENGTHS), gradients(layer, x, length=LENGTHS))

    def test_of_cells(self):
        for kind in "mingru", "minlstm":
            for dtype in torch.float32, torch.bfloat16, torch.float64:
                x, weight, bias, *_ = arguments(kind, dtype=dtype, T=5)
                stored = torch.promote_types(dtype, torch.float32)
                wide = [w.detach().to(stored).requires_grad_() for w in (weight, bias)]
                dirty, length = x.detach().clone(), LENGTHS.int()
                for row, n in enumerate(LENGTHS):
                    dirty[row, n:] = float("nan")
                clean = dirty.nan_to_num(0)
                want = torch.autograd.grad(cell(clean, *wide, length=length, kind=kind)[0].sum(), wide)
                self.same(torch.autograd.grad(cell(dirty, *wide, length=length, kind=kind)[0].sum(), wide), want)

    def test_beneath_transforms(self):
        x, weight, *_ = arguments(dtype=torch.float64, grad=False, T=5)
        x[0, 2:] = float("nan")
        length = torch.tensor([2, 5, 5])
        gradient = torch.func.grad(lambda w: cell(x, w, length=length)[0].sum())(weight)
        wanted = weight.clone().requires_grad_()
        loop(x.nan_to_num(0), wanted, length=length)[0].sum().backward()
        torch.testing.assert_close(gradient, wanted.grad)

    def test_resets_there_are_not_read(self):
        layer = module(bidirectional=True)
        x, h0 = torch.randn(3, 5, 3), torch.randn(2, 3, 4)
        masks = [torch.zeros(3, 5, dtype=torch.bool), torch.zeros(3, 5, dtype=torch.bool)]
        masks[0][2, 3] = masks[1][2, 3] = True
        for row, length in enumerate(LENGTHS):
            masks[1][row, length:] = True
        plain, marked = (gradients(layer, x, hx=h0, reset=mask, length=LENGTHS) for mask in masks)
        self.same(plain, marked)

    def test_resets_in_both_directions(self):
        """Each direction against the plain loop, on rows that are turned by hand."""
        layer = module(bidirectional=True).double()
        x, h0, length = torch.randn(1, 6, 3).double(), torch.randn(2, 1, 4).double(), 4
        reset = torch.tensor([[1, 0, 1, 0, 1, 0]]).bool()
        output, h_n = layer(x, h0, reset=reset, length=torch.tensor([length]))
        turned = torch.tensor([[0, 0, 1, 0]]).bool()  # before token 2, from the other side: before token 1
        h, last = loop(x[:, :length].flip(1), layer.weight_l0_reverse, layer.bias_l0_reverse, h0[1], reset=turned)
        torch.testing.assert_close(output[:, :length, 4:], h.flip(1))
        torch.testing.assert_close(h_n[1], last)

    def test_too_long_counts_as_all(self):
        x = torch.randn(2, 5, 3)
        for layer in module(), module(bidirectional=True):
            for far in (9, -1), (2 ** 31, -2 ** 31 - 1), (2 ** 32 + 1, -2 ** 40), (2 ** 62, -2 ** 62):
                self.same(gradients(layer, x, length=torch.tensor(far)),
                          gradients(layer, x, length=torch.tensor((5, 0))))
        for kind in torch.uint8, torch.int8, torch.int16, torch.int32:
            self.same(gradients(layer, x, length=torch.tensor((9, 2), dtype=kind)),
                      gradients(layer, x, length=torch.tensor((5, 2))))


class NoTokens(unittest.TestCase):
    """Rows without a token end where sequences start."""

    def test_first_states(self):
        for kind in "mingru", "minlstm":
            for candidate in "positive", "linear", "tanh":
                x, weight, bias, h0, h_init = arguments(kind, dtype=torch.float64, T=0)
                for first in None, h0:
                    _, last = cell(x, weight, bias, first, h_init, kind=kind, candidate=candidate)
                    want = candidate_of(h_init, candidate).expand_as(last) if first is None else first
                    torch.testing.assert_close(last, want)
                    given = h_init if first is None else h0
                    direction = torch.randn_like(last)
                    torch.testing.assert_close(torch.autograd.grad(last, given, direction)[0],
                                               torch.autograd.grad(want, given, direction)[0])

    def test_a_first_state_hides_where_sequences_start(self):
        x, weight, bias, h0, h_init = arguments(T=0)
        got, none = torch.autograd.grad(cell(x, weight, bias, h0, h_init)[1].sum(), (h0, h_init))
        self.assertTrue(torch.equal(got, torch.ones_like(h0)))
        self.assertTrue(torch.equal(none, torch.zeros_like(h_init)))

    def test_no_samples(self):
        x, weight, bias, *_ = arguments(dtype=torch.float64, grad=False)
        none = x.new_empty(0, *x.shape)
        h, last = torch.vmap(lambda x: cell(x, weight, bias))(none)
        self.assertEqual((h.shape, last.shape), ((0, 3, 7, 5), (0, 3, 5)))
        gradient = torch.vmap(torch.func.grad(lambda w, x: cell(x, w, bias)[0].sum()), (None, 0))(weight, none)
        self.assertEqual(gradient.shape, (0, *weight.shape))


if __name__ == "__main__":
    unittest.main()
