/* Text through the public API: encoded and decoded, in one piece and in any pieces. */
#include "api_support.h"
#include "scratch.h"

static const char *const bytes_net[] = {"vocab", "bytes", "dim", "8", "layers", "1", NULL};
static const char *const chars_net[] = {"vocab", "[\"a\", \"ä\", \"€\", \"😀\"]", "dim", "4", NULL};

static void a_net_of_bytes_encodes_bytes(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], bytes[4];
    int32_t token;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, bytes_net), *again;
    size_t count, used;
    in_folder("text.safetensors", path);
    OK(mr_net_save(net, path, &err));
    OK(mr_net_open(ctx, path, &again, &err));
    OK(mr_net_encode(again, "A", 1, &token, 1, &count, &used, &err));
    assert_that(token, ==, 'A');
    assert_that(count, ==, 1);
    assert_that(used, ==, 1);
    token = 'z';
    OK(mr_net_decode(again, &token, 1, bytes, sizeof bytes, &count, &err));
    assert_int_equal(count, 1);
    assert_int_equal(bytes[0], 'z');
    mr_net_free(net), mr_net_free(again);
    mr_context_free(ctx);
}

static void a_net_of_characters_encodes_characters(void **state)
{
    (void)state;
    static const char text[] = "äa€😀a";
    const int32_t want[] = {1, 0, 2, 3, 0};
    int32_t tokens[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    char back[32] = {0};
    size_t count, used, size;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, chars_net);
    assert_int_equal(mr_net_outputs(net), 4);
    OK(mr_net_encode(net, text, strlen(text), tokens, 8, &count, &used, &err));
    assert_int_equal(count, 5);
    assert_int_equal(used, strlen(text));
    assert_memory_equal(tokens, want, sizeof want);
    assert_int_equal(tokens[5], 9);
    OK(mr_net_decode(net, tokens, count, back, sizeof back, &size, &err));
    assert_string_equal(back, text);
    assert_int_equal(size, strlen(text));
    OK(mr_net_encode(net, text, strlen(text), NULL, 0, &count, NULL, &err)); /* only counts */
    assert_int_equal(count, 5);
    OK(mr_net_encode(net, "", 0, tokens, 8, &count, NULL, &err));
    assert_int_equal(count, 0);
    FAILS(MR_EDATA, "", mr_net_encode(net, "äb€", 6, tokens, 8, &count, &used, &err));
    /* how far it got */
    assert_that(count, ==, 1);
    assert_that(used, ==, 2);
    FAILS(MR_EINVAL, "tokens[1] = 4", mr_net_decode(net, (int32_t[]){0, 4}, 2, back, sizeof back, &size, &err));
    FAILS(MR_EINVAL, "tokens[0] = -1", mr_net_decode(net, (int32_t[]){-1}, 1, back, sizeof back, &size, &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

/* A text that arrives in pieces of any size gives the same tokens. */
static void characters_that_are_cut(void **state)
{
    (void)state;
    static const char text[] = "äa€😀a€ä";
    int32_t want[8], got[8];
    size_t wanted, count, used;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, chars_net);
    OK(mr_net_encode(net, text, strlen(text), want, 8, &wanted, NULL, &err));
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        size_t have = 0, seen = 0;
        char waiting[64];
        for (size_t at = 0; at < strlen(text); at += piece) {
            const size_t more = strlen(text) - at < piece ? strlen(text) - at : piece;
            memcpy(waiting + have, text + at, more);
            have += more;
            OK(mr_net_encode(net, waiting, have, got + seen, 8 - seen, &count, &used, &err));
            seen += count;
            memmove(waiting, waiting + used, have -= used);
        }
        assert_int_equal(have, 0);
        assert_int_equal(seen, wanted);
        assert_memory_equal(got, want, wanted * sizeof *want);
    }
    FAILS(MR_EDATA, "",
          mr_net_encode(net, text, strlen(text) - 1, got, 8, &count, NULL,
                        &err)); /* the whole text, which ends in the middle of a character */
    mr_net_free(net);
    mr_context_free(ctx);
}

static void encoding_and_decoding_keep_to_their_room(void **state)
{
    (void)state;
    static const char text[] = "äa€😀a";
    int32_t tokens[4] = {-7, -7, -7, -7};
    char bytes[16];
    size_t count, used, size;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, chars_net);
    OK(mr_net_encode(net, text, strlen(text), tokens, 2, &count, &used, &err)); /* as many as there is room for */
    assert_that(count, ==, 2);
    assert_that(used, ==, 3);
    assert_that(tokens[2], ==, -7);
    FAILS(MR_EINVAL, "room for 3 where 5", mr_net_encode(net, text, strlen(text), tokens, 3, &count, NULL, &err));
    assert_int_equal(tokens[3], -7);
    OK(mr_net_encode(net, text, strlen(text), tokens, 0, &count, &used, &err));
    assert_that(count, ==, 0);
    assert_that(used, ==, 0);
    memset(bytes, '#', sizeof bytes);
    FAILS(MR_EINVAL, "12 are needed", mr_net_decode(net, (int32_t[]){1, 0, 2, 3, 1}, 5, bytes, 4, &size, &err));
    for (int i = 0; i < 16; i++) assert_int_equal(bytes[i], '#');
    OK(mr_net_decode(net, (int32_t[]){1, 0, 2, 3, 1}, 5, bytes, 12, &size, &err));
    assert_that(size, ==, 12);
    assert_that(bytes[12], ==, '#');
    mr_net_free(net);
    net = net_of(ctx, tiny);
    FAILS(MR_EINVAL, "no vocabulary", mr_net_encode(net, text, 2, tokens, 4, &count, &used, &err));
    FAILS(MR_EINVAL, "no vocabulary", mr_net_decode(net, tokens, 1, bytes, 4, &size, &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_net_of_bytes_encodes_bytes),
        cmocka_unit_test(a_net_of_characters_encodes_characters),
        cmocka_unit_test(characters_that_are_cut),
        cmocka_unit_test(encoding_and_decoding_keep_to_their_room),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
