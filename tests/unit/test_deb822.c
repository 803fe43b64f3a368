/* text/deb822: Debian package stanzas: reading, features and labels, the data set made of them. */
#include "testing.h"

#include "text/deb822.h"

#include <zlib.h>

/* ---- Stanzas ----------------------------------------------------------------------------------------------- */

static woi_deb822 *open_text(const char *text)
{
    woi_deb822 *reader = NULL;
    assert_int_equal(woi_deb822_open(scratch_text("stanzas", text), &reader, NULL), WO_OK);
    return reader;
}

static bool next(woi_deb822 *reader, woi_stanza *stanza)
{
    bool more;
    wo_error err;
    if (woi_deb822_next(reader, stanza, &more, &err)) fail_msg("%s", err.text);
    return more;
}

static void assert_field(const woi_stanza *stanza, woi_deb822_field field, const char *expected)
{
    const woi_span *span = &stanza->field[field];
    if (!expected) {
        assert_null(span->text);
        return;
    }
    assert_non_null(span->text);
    assert_int_equal(span->bytes, strlen(expected));
    assert_memory_equal(span->text, expected, span->bytes);
}

static void stanzas_in_all_their_forms(void **state)
{
    (void)state;
    woi_deb822 *reader = open_text("# a comment\n"
                                   "\n \t\n"
                                   "Package:  one \r\n"
                                   "TAG: a::b,\r\n"
                                   "# in the middle\n"
                                   " c::d,\n"
                                   "\te::f\n"
                                   "Unknown: x\n"
                                   " not a tag\n"
                                   "Depends:\n"
                                   " x\n"
                                   "Description: short\n"
                                   " long text: with a colon\n"
                                   " .\n"
                                   "tag: again\n"
                                   " and again\n"
                                   " \n"
                                   "\n"
                                   "Section: s\n"
                                   "\n"
                                   "Package: three\n"
                                   "description-EN: caf\xe9 \x01 end");
    woi_stanza stanza;
    assert_true(next(reader, &stanza));
    assert_field(&stanza, WOI_DEB822_PACKAGE, "one");
    assert_field(&stanza, WOI_DEB822_TAG, "a::b,  c::d,  e::f");
    assert_field(&stanza, WOI_DEB822_DEPENDS, "x");
    assert_field(&stanza, WOI_DEB822_DESCRIPTION, "short");
    assert_field(&stanza, WOI_DEB822_SECTION, NULL);
    assert_true(next(reader, &stanza));
    assert_field(&stanza, WOI_DEB822_PACKAGE, NULL);
    assert_field(&stanza, WOI_DEB822_SECTION, "s");
    assert_true(next(reader, &stanza));
    assert_field(&stanza, WOI_DEB822_DESCRIPTION, "caf?   end");
    assert_false(next(reader, &stanza));
    woi_deb822_free(reader);
}

static void gzip_is_unpacked(void **state)
{
    (void)state;
    gzFile file = gzopen(scratch("stanzas.gz"), "wb");
    assert_non_null(file);
    gzputs(file, "Package: zipped\n");
    gzclose(file);
    woi_deb822 *reader = NULL;
    woi_stanza stanza;
    assert_int_equal(woi_deb822_open(scratch("stanzas.gz"), &reader, NULL), WO_OK);
    assert_true(next(reader, &stanza));
    assert_field(&stanza, WOI_DEB822_PACKAGE, "zipped");
    woi_deb822_free(reader);
}

static void what_is_no_stanza_gets_one_sentence(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"Package: a\n\n folded\n", "line 3: begins with a space, but there is no field to continue"},
        {"Package: a\nno colon\n", "line 2: expected 'Field: value', found 'no colon'"},
        {": x\n", "line 1: expected 'Field: value', found ': x'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        woi_deb822 *reader = open_text(cases[i][0]);
        woi_stanza stanza;
        bool more = true;
        wo_status status = WO_OK;
        wo_error err;
        while (!status && more) status = woi_deb822_next(reader, &stanza, &more, &err);
        assert_int_equal(status, WO_ERR_FORMAT);
        assert_string_equal(err.text, cases[i][1]);
        woi_deb822_free(reader);
    }
}

static void an_enormous_line_is_read(void **state)
{
    (void)state;
    enum { BYTES = 5 << 20 };
    char *text = malloc(BYTES + 64);
    assert_non_null(text);
    int n = sprintf(text, "Package: big\nDescription: ");
    memset(text + n, 'x', BYTES);
    strcpy(text + n + BYTES, " end\n");
    woi_deb822 *reader = open_text(text);
    woi_stanza stanza;
    assert_true(next(reader, &stanza));
    assert_int_equal(stanza.field[WOI_DEB822_DESCRIPTION].bytes, BYTES + 4);
    woi_deb822_free(reader);
    free(text);
}

/* ---- Features and labels ----------------------------------------------------------------------------------- */

static char collected[4096];

static wo_status collect(void *ctx, const char *name, size_t bytes, wo_error *err)
{
    (void)ctx, (void)err;
    snprintf(collected + strlen(collected), sizeof collected - strlen(collected), "%.*s|", (int)bytes, name);
    return WO_OK;
}

static const char *extract(const char *text, bool labels)
{
    woi_deb822 *reader = open_text(text);
    woi_stanza stanza;
    assert_true(next(reader, &stanza));
    collected[0] = '\0';
    assert_int_equal((labels ? woi_deb822_labels : woi_deb822_features)(&stanza, collect, NULL, NULL), WO_OK);
    woi_deb822_free(reader);
    return collected;
}

static void features_of_a_package(void **state)
{
    (void)state;
    assert_string_equal(extract("Package: libgtk-4-1.x+y_z\n"
                                "Source: gtk4 (4.8.3)\n"
                                "Section: contrib/libs\n"
                                "Maintainer: Zoë X <z@x.org>\n"
                                "Tag: role::shared-lib, ,uitoolkit::gtk\n"
                                "Description: The GTK+ \"C++\" café—for naïve×people, the 2nd\n",
                                false),
                        "desc:the|desc:gtk+|desc:c++|desc:café|desc:for|desc:naïve|desc:people|desc:the|desc:2nd|"
                        "name:libgtk|name:x|name:y|name:z|section:contrib/libs|maint:Zoë X <z@x.org>|"
                        "tag:role::shared-lib|tag:uitoolkit::gtk|source:gtk|");
    assert_string_equal(extract("Package: python3.11\n", false), "name:python|source:python.|");
    char text[600] = "Package: a\nDescription: ";
    memset(text + strlen(text), 'x', 201);
    strcat(text, " ok\n");
    assert_string_equal(extract(text, false), "desc:ok|name:a|source:a|");
    assert_string_equal(extract("Section: s\n", false), "section:s|");
}

static void labels_of_a_package(void **state)
{
    (void)state;
    assert_string_equal(extract("Package: a\n"
                                "Suggests: last\n"
                                "Depends: libc6 (>= 2.34), python3:any | python3-minimal(<<4) [amd64],,\n"
                                " g++<!nocheck>, ${misc:Depends}, libc6\n"
                                "Pre-Depends: dpkg\n"
                                "Recommends: -odd, b.c|\n",
                                true),
                        "libc6|python3|python3-minimal|g++|libc6|dpkg|b.c|last|");
    assert_string_equal(extract("Package: a\n", true), "");
}

/* ---- The data set ------------------------------------------------------------------------------------------ */

static const char stanzas[] = "Package: app\nDescription: an app app\nDepends: libc6, libx | liby\n\n"
                              "Package: tool\nDescription: an app\nDepends: libc6\nRecommends: libx\n\n"
                              "Package: app\nDescription: newer\nDepends: other\n\n"
                              "Section: nameless\n\n"
                              "Package: data\nDescription: an island\n";

static wo_status read_catalogue(wo_error *err)
{
    woi_catalogue *catalogue = NULL;
    wo_status status = woi_catalogue_read(
        scratch("stanzas"), &(woi_catalogue_options){.min_features = 1, .min_labels = 1, .seed = 1}, &catalogue, err);
    woi_catalogue_free(catalogue);
    return status;
}

static void a_catalogue_counts_and_numbers(void **state)
{
    (void)state;
    woi_catalogue *catalogue = NULL;
    scratch_text("stanzas", stanzas);
    assert_int_equal(woi_catalogue_read(scratch("stanzas"),
                                        &(woi_catalogue_options){.min_features = 2, .min_labels = 2, .seed = 1},
                                        &catalogue, NULL),
                     WO_OK);
    const woi_catalogue_counts *counts = woi_catalogue_get_counts(catalogue);
    assert_int_equal(counts->n_stanzas, 5);
    assert_int_equal(counts->nameless, 1);
    assert_int_equal(counts->repeated, 1);
    assert_int_equal(counts->unlabelled, 1);
    assert_int_equal(counts->part[0] + counts->part[1] + counts->part[2], 2);
    assert_int_equal(counts->n_labels, 2); /* libc6, libx: liby has one package */
    assert_int_equal(woi_names_find(woi_catalogue_labels(catalogue), "libc6", 5), 0);
    assert_int_equal(woi_names_find(woi_catalogue_labels(catalogue), "libx", 4), 1);
    assert_int_equal(counts->n_features, 2); /* desc:an of three packages, desc:app of two */
    assert_int_equal(woi_names_find(woi_catalogue_features(catalogue), "desc:an", 7), 0);
    assert_int_equal(woi_names_find(woi_catalogue_features(catalogue), "desc:app", 8), 1);
    woi_catalogue_free(catalogue);
}

static void an_empty_catalogue_gets_one_sentence(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "holds no package stanza ('apt-cache dumpavail' prints them)"},
        {"# only this\n", "holds no package stanza ('apt-cache dumpavail' prints them)"},
        {"Section: s\n", "none of its 1 stanzas has a Package field"},
        {"Package: a\n", "none of its 1 packages needs one that 1 or more need"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wo_error err;
        scratch_text("stanzas", cases[i][0]);
        assert_int_equal(read_catalogue(&err), WO_ERR_FORMAT);
        assert_string_equal(err.text, cases[i][1]);
    }
}

static void memory_that_runs_out_is_given_back(void **state)
{
    (void)state;
    scratch_text("stanzas", stanzas);
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    wo_error err;
    long n = 0;
    for (;; n++) {
        allocations_left = n;
        allocations_alive = 0;
        wo_status status = read_catalogue(&err);
        allocations_left = -1;
        assert_int_equal(allocations_alive, 0);
        if (!status) break;
        assert_int_equal(status, WO_ERR_MEMORY);
    }
    wo_allocator_set(NULL);
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stanzas_in_all_their_forms),
        cmocka_unit_test(gzip_is_unpacked),
        cmocka_unit_test(what_is_no_stanza_gets_one_sentence),
        cmocka_unit_test(an_enormous_line_is_read),
        cmocka_unit_test(features_of_a_package),
        cmocka_unit_test(labels_of_a_package),
        cmocka_unit_test(a_catalogue_counts_and_numbers),
        cmocka_unit_test(an_empty_catalogue_gets_one_sentence),
        cmocka_unit_test(memory_that_runs_out_is_given_back),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
