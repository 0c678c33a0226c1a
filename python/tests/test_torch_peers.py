"""What other minGRU packages promise, of ours through shims of their interfaces: shapes, parallel ≡ sequential, states,
gradients. peer_shims.py runs their own test files, where they are at hand."""
import unittest

from peer_shims import (CheindBidirectional, CheindCell, CheindStack, LucidrainsMinGRU, LucidrainsMinLSTM,
                        parallel_scan_log)
from torch_support import torch


class Lucidrains(unittest.TestCase):
    def each(self):
        torch.manual_seed(1)
        for kind in LucidrainsMinGRU, LucidrainsMinLSTM:
            for options in {}, {"expansion_factor": 1.5}, {"expansion_factor": 1.5, "proj_out": False}:
                yield kind(32, **options), torch.randn(2, 200, 32)

    def test_their_readme(self):
        for layer, x in self.each():
            out, state = layer(x), None
            self.assertEqual(out.shape[:2], x.shape[:2])
            for token in x.unbind(1):
                step, state = layer(token[:, None], state, return_next_prev_hidden=True)
            self.assertTrue(torch.allclose(out[:, -1:], step, atol=1e-5))

    def test_a_state_goes_on(self):
        for layer, x in self.each():
            _, state = layer(x[:, :77], return_next_prev_hidden=True)
            again = layer(x[:, 77:], state)
            self.assertTrue(torch.allclose(layer(x)[:, 77:], again, atol=1e-5))
            self.assertEqual(state.shape[:2], (2, 1))

    def test_theirs_computes_the_same(self):
        try:
            from minGRU_pytorch.minGRU import minGRU
            from minGRU_pytorch.minLSTM import minLSTM
        except ImportError:
            self.skipTest("minGRU-pytorch is not installed: its outputs and gradients were not compared")
        for ours, x in self.each():
            inner = len(next(ours.parameters())) // ours.gates
            theirs = (minGRU if ours.kind == "mingru" else minLSTM)(32, inner / 32,
                                                                    isinstance(ours.to_out, torch.nn.Linear)).double()
            theirs.load_state_dict(ours.state_dict())
            results = []
            for layer, like in (ours, x), (theirs, x.double()):
                inputs = like.clone().requires_grad_()
                layer(inputs).square().mean().backward()
                results.append((inputs.grad, *(p.grad for p in layer.parameters())))
            for a, b in zip(*results):
                self.assertTrue(((a - b).abs() <= 1e-5 * (b.abs().max() + 1e-3)).all())


class Cheind(unittest.TestCase):
    def test_parallel_is_sequential(self):
        torch.manual_seed(1)
        x = torch.randn(2, 60, 3)
        for bias in True, False:
            for module in (CheindCell(3, 5, bias), CheindStack(3, [4, 5], bias=bias),
                           CheindStack(3, [4, 4], bias=bias, residual=True)):
                h, steps = None, []
                for t in range(60):
                    out, h = module(x[:, t:t + 1], h)
                    steps.append(out)
                whole, last = module(x, module.init_hidden_state(x))
                self.assertTrue(torch.allclose(torch.cat(steps, 1), whole, atol=1e-5))
                self.assertTrue(all(torch.allclose(a, b, atol=1e-5) for a, b in zip(h, last)))
                whole.square().sum().backward()
                self.assertTrue(all(p.grad.abs().sum() > 0 for p in module.parameters()))

    def test_both_directions(self):
        x = torch.randn(2, 7, 3)
        both = CheindBidirectional(CheindStack(3, [4, 5]))
        out, h = both(x)
        self.assertEqual((out.shape, [s.shape[2] for s in h]), ((2, 7, 10), [4, 5, 4, 5]))
        self.assertTrue(torch.equal(out[..., :5], both.there(x)[0]))

    def test_their_scan_of_logarithms(self):
        a, b, first = torch.rand(2, 9, 3) + 0.1, torch.rand(2, 9, 3) + 0.1, torch.rand(2, 1, 3) + 0.1
        got, state = parallel_scan_log(a.log(), torch.cat([first, b], 1).log()), first[:, 0]
        for t in range(9):
            state = a[:, t] * state + b[:, t]
            self.assertTrue(torch.allclose(got[:, t + 1], state, rtol=1e-5))

    def test_gates_look_at_the_input_alone(self):
        layer, x = CheindCell(3, 5), torch.randn(1, 20, 3)
        first = torch.randn(1, 1, 5)
        zero, one, two = (layer(x, [first * n])[0] for n in range(3))
        self.assertTrue(torch.allclose(two - one, one - zero, atol=1e-5))


if __name__ == "__main__":
    unittest.main()
