/* text/tokens: text to token files and back. */
#include "signing.h"
#include "testing.h"

#include "text/tokens.h"

static woi_corpus read_text(const char *text, woi_eos eos, uint64_t min_count)
{
    woi_corpus corpus = {0};
    wo_error err;
    if (woi_corpus_read(&corpus, scratch_text("text", text), eos, NULL, &err) ||
        woi_corpus_finish(&corpus, eos, min_count, &err))
        fail_msg("%s", err.text);
    return corpus;
}

/* The words as ids, then the vocabulary. */
static void assert_corpus(woi_corpus corpus, const char *expected)
{
    char got[256] = "";
    for (size_t i = 0; i < corpus.n; i++) snprintf(got + strlen(got), 32, "%d ", corpus.ids[i]);
    for (int32_t i = 0; i < corpus.words.n; i++)
        snprintf(got + strlen(got), 32, "%.*s ", (int)woi_names_bytes(&corpus.words, i),
                 woi_names_get(&corpus.words, i));
    assert_string_equal(got, expected);
    woi_corpus_free(&corpus);
}

static void words_get_ids_by_first_appearance(void **state)
{
    (void)state;
    assert_corpus(read_text("b a  b\tc", WOI_EOS_AUTO, 1), "0 1 0 2 b a c ");
    assert_corpus(read_text(" b a\n", WOI_EOS_AUTO, 1), "0 1 b a ");
    assert_corpus(read_text("b a\nb\n", WOI_EOS_AUTO, 1), "0 1 2 0 2 b a <eos> ");
    assert_corpus(read_text("b a\r\nb", WOI_EOS_AUTO, 1), "0 1 2 0 2 b a <eos> ");
    assert_corpus(read_text("\n\nb", WOI_EOS_AUTO, 1), "0 0 1 0 <eos> b ");
    assert_corpus(read_text("b a\nb\n", WOI_EOS_OFF, 1), "0 1 0 b a ");
    assert_corpus(read_text("b a", WOI_EOS_ON, 1), "0 1 2 b a <eos> ");
}

static void rare_words_become_unknown(void **state)
{
    (void)state;
    assert_corpus(read_text("a b c a d a c", WOI_EOS_AUTO, 2), "0 1 2 0 1 0 2 a <unk> c ");
    assert_corpus(read_text("a <unk> b a", WOI_EOS_AUTO, 2), "0 1 1 0 a <unk> ");
    assert_corpus(read_text("a a\na", WOI_EOS_ON, 3), "0 0 1 0 1 a <eos> ");
}

static void texts_share_a_vocabulary(void **state)
{
    (void)state;
    woi_corpus corpus = {0};
    static const char *const texts[] = {"a b", "c", "b c\nd"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(woi_corpus_read(&corpus, scratch_text("text", texts[i]), WOI_EOS_AUTO, NULL, NULL), WO_OK);
    assert_int_equal(woi_corpus_finish(&corpus, WOI_EOS_AUTO, 1, NULL), WO_OK);
    assert_true(corpus.eos); /* one of them has two lines */
    assert_int_equal(corpus.end[0], 3);
    assert_int_equal(corpus.end[1], 5);
    assert_int_equal(corpus.end[2], 10);
    assert_corpus(corpus, "0 1 2 3 2 1 3 2 4 2 a b <eos> c d ");

    corpus = (woi_corpus){0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(woi_corpus_read(&corpus, scratch_text("text", texts[i]), WOI_EOS_AUTO, NULL, NULL), WO_OK);
    assert_int_equal(woi_corpus_finish(&corpus, WOI_EOS_AUTO, 1, NULL), WO_OK);
    assert_int_equal(corpus.end[0], 2);
    assert_int_equal(corpus.end[1], 3);
    assert_corpus(corpus, "0 1 2 a b c ");
}

static void bad_text_gets_one_sentence(void **state)
{
    (void)state;
    static char long_word[3 << 20];
    memset(long_word, 'x', sizeof long_word - 1);
    memcpy(long_word, "ab ", 3);
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "the text is empty"},
        {" \t", "the text has no words"},
        {"a a a", "the vocabulary has one word only, 'a': nothing to predict"},
        {"\n\n", "the vocabulary has one word only, '<eos>': nothing to predict"},
        {"ab c\xff", "byte 3 of the text: a word that is not UTF-8"},
        {"ab c\x01z", "byte 3 of the text: the control character 0x01 in the word 'c?z'"},
        {long_word, "byte 3 of the text: a word of more than 65536 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        woi_corpus corpus = {0};
        wo_error err;
        wo_status status = woi_corpus_read(&corpus, scratch_text("text", cases[i].text), WOI_EOS_AUTO, NULL, &err);
        if (!status) status = woi_corpus_finish(&corpus, WOI_EOS_AUTO, 1, &err);
        assert_int_equal(status, WO_ERR_FORMAT);
        assert_string_equal(err.text, cases[i].sentence);
        woi_corpus_free(&corpus);
    }
}

/* Words lie across the pieces in which text is read. */
static void pieces_do_not_cut_words(void **state)
{
    (void)state;
    enum { WORDS = 500000 };
    char *text = malloc(WORDS * 7 + 1), *at = text;
    assert_non_null(text);
    for (int i = 0; i < WORDS; i++) at += sprintf(at, "%05d%c", i % 99991, i % 17 == 16 ? '\n' : ' ');
    woi_corpus corpus = read_text(text, WOI_EOS_OFF, 1);
    assert_int_equal(corpus.n, WORDS);
    assert_int_equal(corpus.words.n, 99991);
    assert_int_equal(corpus.text_bytes, at - text);
    for (int i = 0; i < WORDS; i++) assert_int_equal(corpus.ids[i], i % 99991);
    woi_corpus_free(&corpus);
    free(text);
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

static void write_part(const woi_corpus *corpus, int part, const char *name)
{
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_corpus_write(corpus, part, 1, scratch(name), &writer, NULL), WO_OK);
    assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
    woi_st_writer_free(writer);
}

static void files_give_the_tokens_back(void **state)
{
    (void)state;
    woi_corpus corpus = read_text("a b c d e f g h i j\nk l m n o p q r", WOI_EOS_AUTO, 1); /* 20 with <eos> */
    wo_error err;
    assert_int_equal(woi_corpus_split(&corpus, (uint64_t[]){65, 5, 30}, NULL), WO_OK);
    assert_int_equal(corpus.end[0], 13);
    assert_int_equal(corpus.end[1], 14);
    assert_int_equal(corpus.end[2], 20);
    woi_tokens tokens;
    for (int part = 0; part < WOI_CORPUS_PARTS; part++) {
        size_t begin = part ? corpus.end[part - 1] : 0;
        write_part(&corpus, part, "part");
        assert_int_equal(woi_tokens_open(scratch("part"), &tokens, NULL), WO_OK);
        assert_int_equal(tokens.n, corpus.end[part] - begin);
        assert_memory_equal(tokens.ids, corpus.ids + begin, tokens.n * sizeof(int32_t));
        assert_int_equal(tokens.words.n, 19);
        assert_int_equal(tokens.eos, 10);
        assert_int_equal(tokens.unk, -1);
        woi_tokens_close(&tokens);
    }
    assert_int_equal(woi_corpus_split(&corpus, (uint64_t[]){98, 1, 1}, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "has 20 tokens: too few for a valid part");
    assert_string_equal(err.option, "shares");

    corpus.end[0] = 20;
    corpus.ids[7] = 19;
    write_part(&corpus, 0, "part");
    assert_int_equal(woi_tokens_open(scratch("part"), &tokens, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "tokens[7] is 19, expected 0 to 18");
    corpus.ids[7] = -1;
    write_part(&corpus, 0, "part");
    assert_int_equal(woi_tokens_open(scratch("part"), &tokens, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "tokens[7] is -1, expected 0 to 18");
    woi_corpus_free(&corpus);
    assert_int_equal(woi_tokens_open("tests/golden/layer-v1.safetensors", &tokens, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "is of kind layer, expected a token file");
}

/* A file that says it is ours, with tensors that are not where we put them: on an odd byte, for want of a space. */
static void tokens_may_lie_anywhere(void **state)
{
    (void)state;
    wo_error err;
    bool found = false;
    for (int words = 2; !found && words < 12; words++) {
        char text[64] = "a b";
        for (int i = 2; i < words; i++) snprintf(text + strlen(text), sizeof text - strlen(text), " %c", 'a' + i);
        woi_corpus corpus = read_text(text, WOI_EOS_OFF, 1);
        corpus.end[0] = corpus.n;
        write_part(&corpus, 0, "part");
        size_t bytes;
        char *data = slurp(scratch("part"), &bytes);
        uint64_t header_bytes;
        memcpy(&header_bytes, data, 8);
        found = data[8 + header_bytes - 1] == ' ';
        if (found) {
            memmove(data + 8 + header_bytes - 1, data + 8 + header_bytes, bytes - 8 - header_bytes);
            header_bytes--;
            memcpy(data, &header_bytes, 8);
            assert_true(sign((unsigned char *)data, bytes - 1));
            woi_tokens tokens;
            if (woi_tokens_open(scratch_write("odd", data, bytes - 1), &tokens, &err)) fail_msg("%s", err.text);
            assert_int_equal(tokens.n, words);
            assert_memory_equal(tokens.ids, corpus.ids, tokens.n * sizeof(int32_t));
            woi_tokens_close(&tokens);
        }
        free(data);
        woi_corpus_free(&corpus);
    }
    assert_true(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_get_ids_by_first_appearance), cmocka_unit_test(rare_words_become_unknown),
        cmocka_unit_test(texts_share_a_vocabulary),          cmocka_unit_test(bad_text_gets_one_sentence),
        cmocka_unit_test(pieces_do_not_cut_words),           cmocka_unit_test(files_give_the_tokens_back),
        cmocka_unit_test(tokens_may_lie_anywhere),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
