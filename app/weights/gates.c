/* Gates, norms and convolutions as lucidrains' code and the authors' have them. */
#include "weights/gates.h"

void mr_gates_set(mr_transfer *t, int lstm)
{
    mr_set(t, "mixer", lstm ? "minlstm" : "mingru");
    mr_set(t, "candidate", "positive");
    mr_set(t, "scan", "linear");
    mr_set(t, "normalize-gates", "yes");
}

void mr_move_gates(mr_transfer *t, const char *theirs, int block, int lstm, const char *what, int64_t columns)
{
    static const char *const words[2][3] = {{"linear_h", "linear_z"}, {"linear_h", "linear_f", "linear_i"}};
    const int count = lstm ? 3 : 2;
    mr_name names[3];
    mr_part parts[3];
    for (int i = 0; i < count; i++) {
        names[i] = mr_name_of("blocks.%d.mixer.%s.%s", block, words[lstm][i], what);
        parts[i] = (mr_part){.ours = names[i].text, .columns = columns};
    }
    mr_move_parts(t, theirs, parts, count, 0);
}

void mr_move_gain(mr_transfer *t, const char *prefix, const char *ours)
{
    const mr_name gamma = mr_name_of("%s.gamma", prefix);
    if (!t->from || !mr_foreign_has(t->from, gamma.text)) {
        mr_move(t, mr_name_of("%s.weight", prefix).text, ours);
        return;
    }
    const int64_t size = mr_size_of(t, ours, 0);
    float *gain = mr_take(t, gamma.text, 1, &size);
    for (int64_t i = 0; gain && i < size; i++) gain[i] += 1;
    if (gain) mr_put(t, ours, gain, (size_t)size);
}

void mr_move_conv(mr_transfer *t, const char *prefix, int block)
{
    const mr_name point = mr_name_of("blocks.%d.conv.point.weight", block);
    mr_move(t, mr_name_of("%s.net.0.weight", prefix).text, mr_name_of("blocks.%d.conv.weight", block).text);
    mr_move(t, mr_name_of("%s.net.0.bias", prefix).text, mr_name_of("blocks.%d.conv.bias", block).text);
    mr_move_parts(t, mr_name_of("%s.net.1.weight", prefix).text, &(mr_part){.ours = point.text}, 1, 1);
    mr_move(t, mr_name_of("%s.net.1.bias", prefix).text, mr_name_of("blocks.%d.conv.point.bias", block).text);
}
