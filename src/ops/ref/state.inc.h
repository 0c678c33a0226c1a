/* Moves states of streams between a pool and a batch. */

static void state_rows(mr_dev *dev, const mr_state_rows_args *a)
{
    (void)dev;
    const size_t B = (size_t)a->B, layers = (size_t)a->layers;
    const size_t parts[] = {(size_t)a->tail, (size_t)a->mixer, (size_t)a->rest}, all = parts[0] + parts[1] + parts[2];
    for (size_t b = 0; b < B; b++)
        for (size_t layer = 0; layer < layers; layer++) {
            real *one = OUT(a->pool) + ((size_t)a->slot[b] * layers + layer) * all,
                 *many = OUT(a->many) + layer * all * B;
            for (int p = 0; p < 3; one += parts[p], many += parts[p] * B, p++)
                for (size_t i = 0; i < parts[p]; i++)
                    if (a->scatter) one[i] = many[b * parts[p] + i];
                    else many[b * parts[p] + i] = one[i];
        }
}
