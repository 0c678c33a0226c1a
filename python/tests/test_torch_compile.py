"""torch.compile, torch.func, torch.export, torch.library.opcheck and autocast."""
import unittest

from torch_support import arguments, loop, masks, torch, version

from minrnn.torch import MinGRU, MinLSTM, cell, scan

NAMES = ("x", "weight", "bias", "h0", "h_init")


def near(test, ours, theirs, tolerance=1e-5):
    for name, a, b in zip(NAMES, ours, theirs):
        test.assertEqual(a.shape, b.shape, name)
        test.assertTrue(bool(((a - b).abs() <= tolerance * (1 + b.abs())).all()), f"{name}: {a} is not {b}")


class Operators(unittest.TestCase):
    def check(self, name, *args):
        results = torch.library.opcheck(getattr(torch.ops.minrnn, name).default, args)
        self.assertEqual(set(results.values()), {"SUCCESS"}, results)

    def test_cells(self):
        reset, length = masks()
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            for kind, name in enumerate(("mingru", "minlstm")):
                wide = torch.float64 if dtype == torch.float64 else torch.float32
                x, *rest = [a.detach().to(wide) for a in arguments(name)]
                x, extra, how = x.to(dtype), (reset.to(torch.uint8), length.int()), (kind, 0, True, False)
                self.check("cell", x, *rest, *extra, *how, True)
                self.check("cell", x, rest[0], None, None, None, None, None, *how, False)
                h, last, saved = torch.ops.minrnn.cell(x, *rest, *extra, *how, True)
                self.check("cell_backward", x, *rest, *extra, h, saved, h, last, *how, True)
                self.check("cell_backward", x, rest[0], None, None, None, None, None, h, saved, h, None, *how, False)
                pre = torch.nn.functional.linear(x, rest[0].to(dtype))
                self.check("cell", pre, None, None, None, None, None, None, *how, True)

    def test_scans(self):
        reset, length = masks()
        a, h0 = torch.rand(3, 7, 4), torch.rand(3, 4)
        self.check("scan", a, a, h0, reset.to(torch.uint8), length.int())
        self.check("scan", a, a, None, None, None)
        h, last = torch.ops.minrnn.scan(a, a, None, None, None)
        self.check("scan_backward", a, h0, reset.to(torch.uint8), length.int(), h, h, last)
        self.check("scan_backward", a, None, None, None, h, h, None)


class Func(unittest.TestCase):
    """torch.func on a loss of all arguments, with masks."""

    def loss(self, *args):
        h, last = cell(*args[:5], *args[5:], kind=self.kind)
        return h.square().sum() + last.sum()

    def each(self):
        for self.kind in ("mingru", "minlstm"):
            args = arguments(self.kind, dtype=torch.float32)
            yield args, masks(), torch.autograd.grad(self.loss(*args, *masks()), args)

    def test_grad(self):
        for args, extra, right in self.each():
            near(self, torch.func.grad(self.loss, argnums=(0, 1, 2, 3, 4))(*args, *extra), right)

    def test_vmap(self):
        """Samples as rows: what is batched, and what is shared."""
        for args, extra, _ in self.each():
            def one(x, h0, reset, length):
                h, _ = cell(x[None], args[1], args[2], h0[None], args[4], reset[None], length[None], kind=self.kind)
                return h[0]
            many = torch.vmap(one)(args[0], args[3], *extra)
            near(self, [many], [cell(*args, *extra, kind=self.kind)[0]])

    def test_vmap_over_weights(self):
        x, weight, bias, _, h_init = (a.detach() for a in arguments(dtype=torch.float32))
        weights, inits = torch.stack([weight, 2 * weight]), torch.stack([h_init, -h_init])
        many = torch.vmap(lambda w, i: cell(x, w, bias, None, i)[0])(weights, inits)
        near(self, many, [cell(x, w, bias, None, i)[0] for w, i in zip(weights, inits)])

    def test_gradients_of_each_sample(self):
        for args, extra, _ in self.each():
            def one(x, w, b, h0, i, reset, length):
                return self.loss(x[None], w, b, h0[None], i, reset[None], length[None])
            gradient = torch.func.grad(one, argnums=(0, 1, 2, 3, 4))
            got = torch.vmap(gradient, (0, None, None, 0, None, 0, 0))(*args, *extra)
            for i in range(3):
                leaves = [args[0][i:i + 1], args[1], args[2], args[3][i:i + 1], args[4]]
                leaves = [x.detach().clone().requires_grad_() for x in leaves]
                right = torch.autograd.grad(self.loss(*leaves, extra[0][i:i + 1], extra[1][i:i + 1]), leaves)
                near(self, [g[i].reshape(r.shape) for g, r in zip(got, right)], right)

    def test_gradients_of_each_sample_of_a_scan(self):
        a, b = torch.rand(3, 7, 4), torch.rand(3, 7, 4)

        def one(a, b):
            return scan(a, b)[0].square().sum()
        got = torch.vmap(torch.func.grad(one, argnums=(0, 1)))(a, b)
        leaves = a.clone().requires_grad_(), b.clone().requires_grad_()
        near(self, got, torch.autograd.grad(one(*leaves), leaves))

    def test_jacobian(self):
        x = torch.rand(1, 3, 2)
        weight = torch.rand(4, 2)
        got = torch.func.jacrev(lambda x: cell(x, weight)[0])(x)
        near(self, [got], [torch.autograd.functional.jacobian(lambda x: loop(x, weight)[0], x)])

    def test_functional_call(self):
        module, x = MinGRU(4, 5, 2, batch_first=True), torch.randn(3, 7, 4)
        weights = dict(module.named_parameters())
        got = torch.func.grad(lambda w: torch.func.functional_call(module, w, (x,))[0].square().sum())(weights)
        module(x)[0].square().sum().backward()
        for name, p in weights.items():
            self.assertTrue(torch.allclose(got[name], p.grad, rtol=1e-4, atol=1e-5), name)


class Compiled(unittest.TestCase):
    def test_whole_graphs(self):
        for kind in ("mingru", "minlstm"):
            args, extra = arguments(kind, dtype=torch.float32), masks()

            def step(*args):
                h, last = cell(*args, *extra, kind=kind)
                return h.square().sum() + last.sum()
            compiled = torch.compile(step, fullgraph=True)
            right = torch.autograd.grad(step(*args), args)
            kept = {"donated_buffer": False} if hasattr(torch._functorch.config, "donated_buffer") else {}
            with torch._functorch.config.patch(**kept):  # else PyTorch keeps no compiled graph
                loss = compiled(*args)
                near(self, torch.autograd.grad(loss, args, retain_graph=True), right)
                near(self, torch.autograd.grad(loss, args), right)
            with torch.no_grad():
                near(self, [compiled(*args)], [step(*args)])

    def test_any_length_by_one_graph(self):
        module = MinLSTM(4, 5, 2, bidirectional=True)
        seen = []

        def count(graph, inputs):
            seen.append(graph)
            return graph.forward
        compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=count)
        for T in (5, 9, 31):
            x = torch.randn(T, 2, 4)
            near(self, [compiled(x)[0]], [module(x)[0]])
        self.assertEqual(len(seen), 1)

    @unittest.skipIf(version() < (2, 6), "torch.func within torch.compile: not with PyTorch before 2.6")
    def test_func_within_compile(self):
        args = [a.detach() for a in arguments(dtype=torch.float32)[:3]]

        def step(*args):
            return cell(*args)[0].square().sum()
        compiled = torch.compile(torch.func.grad(step, argnums=(0, 1, 2)), fullgraph=True)
        near(self, compiled(*args), torch.func.grad(step, argnums=(0, 1, 2))(*args))

    @unittest.skipIf(version() < (2, 15), "torch.vmap within torch.compile: not with PyTorch before 2.15")
    def test_vmap_within_compile(self):
        x, weight, bias, h0, _ = (a.detach() for a in arguments(dtype=torch.float32))
        compiled = torch.compile(torch.vmap(lambda x, h0: cell(x[None], weight, bias, h0[None])[0][0]), fullgraph=True)
        near(self, [compiled(x, h0)], [cell(x, weight, bias, h0)[0]])

    def test_export(self):
        T = torch.export.Dim("T", min=2, max=4096)
        for module in (MinGRU(4, 5, 2, batch_first=True), MinLSTM(4, 5)):
            x = torch.randn(3, 7, 4)
            dim = 1 if module.batch_first else 0
            program = torch.export.export(module, (x,), dynamic_shapes=({dim: T},))
            self.assertIn("minrnn.cell", str(program.graph))
            longer = torch.randn(3, 19, 4) if module.batch_first else torch.randn(19, 7, 4)
            near(self, [program.module()(longer)[0]], [module(longer)[0]])


class Autocast(unittest.TestCase):
    def test_bfloat16(self):
        module, x = MinGRU(4, 5, batch_first=True), torch.randn(3, 7, 4)
        for run in (module, torch.compile(module, fullgraph=True)):
            module.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                y, h_n = run(x)
            self.assertEqual((y.dtype, h_n.dtype), (torch.bfloat16, torch.bfloat16))
            y.float().sum().backward()
            self.assertEqual(module.weight_l0.grad.dtype, torch.float32)
            near(self, [y.float()], [module(x)[0]], 0.03)

    def test_float16_is_computed_in_float32(self):
        module, x = MinGRU(4, 5, batch_first=True), torch.randn(3, 7, 4)
        with torch.autocast("cpu", torch.float16):
            self.assertTrue(torch.equal(module(x)[0], module(x.clone())[0]))
            self.assertEqual(module(x)[0].dtype, torch.float32)
        half = MinGRU(4, 5, batch_first=True).half()
        y, h_n = half(x.half())
        self.assertEqual((y.dtype, h_n.dtype), (torch.float16, torch.float16))
        y.float().sum().backward()
        self.assertEqual(half.weight_l0.grad.dtype, torch.float16)

    def test_bfloat16_weights(self):
        module = MinLSTM(4, 5, dtype=torch.bfloat16)
        y, (h_n, _) = module(torch.randn(7, 2, 4).bfloat16())
        y.float().sum().backward()
        self.assertEqual({y.dtype, h_n.dtype, module.weight_l0.grad.dtype}, {torch.bfloat16})


class Dimensions(unittest.TestCase):
    def near(self, a, b):
        self.assertEqual(a.shape, b.shape)
        self.assertTrue(torch.allclose(a, b, rtol=1e-5, atol=1e-5))

    def test_vmap_over_any_dimension(self):
        """Samples along other dimensions than the first, beside arguments that all samples share."""
        x, weight, bias, h0, _ = arguments(dtype=torch.float32, grad=False)
        many = torch.stack([x, 2 * x, -x], 1)  # [batch, sample, time, features]
        got = torch.vmap(lambda x: cell(x, weight, bias, h0)[0], 1, 2)(many)
        want = torch.stack([cell(v, weight, bias, h0)[0] for v in (x, 2 * x, -x)], 2)
        self.near(got, want)
        weights = torch.stack([weight, 2 * weight, -weight], 1)
        got = torch.vmap(lambda w: cell(x, w, bias, h0)[0], 1)(weights)
        self.near(got, torch.stack([cell(x, w, bias, h0)[0] for w in weights.unbind(1)]))
        inits = torch.randn(5, 3)
        got = torch.vmap(lambda i: cell(x, weight, bias, None, i)[0], 1)(inits)
        self.near(got, torch.stack([cell(x, weight, bias, None, i)[0] for i in inits.unbind(1)]))
        reset, length = masks()
        a, h0 = torch.rand(3, 7, 2, 4), torch.rand(3, 4)
        got = torch.vmap(lambda a: scan(a, a, h0, reset, length)[0], 2)(a)
        self.near(got, torch.stack([scan(v, v, h0, reset, length)[0] for v in a.unbind(2)]))

    def test_gradient_of_one_argument(self):
        args, extra = arguments(dtype=torch.float32), masks()
        want = torch.autograd.grad(cell(*args, *extra)[0].square().sum(), args)
        frozen = [x.detach() for x in args]
        for i in range(5):
            def loss(v):
                return cell(*frozen[:i], v, *frozen[i + 1:], *extra)[0].square().sum()
            self.near(torch.func.grad(loss)(frozen[i]), want[i])

    def test_compiled_gradient_of_one_argument(self):
        args = arguments(dtype=torch.float32)
        want = torch.autograd.grad(cell(*args)[0].square().sum(), args)
        for i in 0, 1, 3:
            some = [x if k == i else x.detach() for k, x in enumerate(args)]
            run = torch.compile(lambda *a: cell(*a)[0].square().sum(), fullgraph=True, backend="aot_eager")
            self.near(torch.autograd.grad(run(*some), args[i])[0], want[i])

    def test_many_gradients_of_a_scan_at_once(self):
        a, b, h0 = (torch.rand(*shape, requires_grad=True) for shape in ((3, 7, 4), (3, 7, 4), (3, 4)))
        h, _ = scan(a, b, h0)
        dh = torch.randn(2, *h.shape)
        batched = torch.autograd.grad(h, (a, b, h0), dh, is_grads_batched=True, retain_graph=True)
        for i in range(2):
            for many, one in zip(batched, torch.autograd.grad(h, (a, b, h0), dh[i], retain_graph=True)):
                self.assertTrue(torch.equal(many[i], one))

    def test_gradients_of_each_sample_with_a_first_state_alone(self):
        """Without weights among what is differentiated, samples are rows; h_init has a gradient of each."""
        x, weight, bias, _, h_init = arguments(dtype=torch.float32, grad=False)

        def loss(x, i):
            return cell(x[None], weight, bias, None, i)[0].square().sum()
        dx, di = torch.vmap(torch.func.grad(loss, argnums=(0, 1)), (0, None))(x, h_init)
        for k in range(3):
            leaves = [v.clone().requires_grad_() for v in (x[k:k + 1], h_init)]
            want = torch.autograd.grad(loop(leaves[0], weight, bias, None, leaves[1])[0].square().sum(), leaves)
            self.near(dx[k], want[0][0])
            self.near(di[k], want[1])


class Gates(unittest.TestCase):
    def test_gates_alone_have_their_gradient_always(self):
        """Without a weight dx is that of the gates, which the operator gives whether it is needed or not."""
        pre, how = torch.randn(3, 7, 10), (0, 0, True, False)
        h, _, saved = torch.ops.minrnn.cell(pre, None, None, None, None, None, None, *how, True)
        for needed in True, False:
            args = (pre, None, None, None, None, None, None, h, saved, h, None, *how, needed)
            results = torch.library.opcheck(torch.ops.minrnn.cell_backward.default, args)
            self.assertEqual(set(results.values()), {"SUCCESS"}, results)


class AutocastLeaves(unittest.TestCase):
    def test_what_autocast_leaves_alone(self):
        x, weight, *_ = arguments(grad=False)
        with torch.autocast("cpu", torch.bfloat16):
            h, last = cell(x, weight)
            self.assertEqual((h.dtype, last.dtype), (torch.float64, torch.float64))
            with self.assertRaisesRegex(TypeError, "^x: is torch.int64"):
                cell(x.long(), weight.float())
        self.assertTrue(torch.equal(h, cell(x, weight)[0]))


if __name__ == "__main__":
    unittest.main()
