/* PyTorch's exact layer in a process of its own: torch_full.py, fed by files, asked and answered by lines. The process
 * keeps its own clock, so that the pipe is not in the time. */
#include "contender.h"

#include "../cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef BENCH_DIR
#define BENCH_DIR "bench"
#endif

static const char *const parts[] = {"weight", "bias", "queries"};

struct bench_torch {
    pid_t process;
    FILE *to, *from;
    char folder[64], version[64];
    char *line;
    size_t room;
};

static wo_status write_part(const bench_torch *t, const char *part, const float *values, size_t n, wo_error *err)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", t->folder, part);
    FILE *file = fopen(path, "wb");
    const bool written = file && fwrite(values, sizeof *values, n, file) == n;
    if ((file && fclose(file)) || !written)
        return cli_set_error(err, WO_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return WO_OK;
}

/* Python with our ends of two pipes. */
static wo_status start_process(bench_torch *t, const bench_data *data, wo_error *err)
{
    char m[24], d[24], n[24];
    int down[2], up[2];
    snprintf(m, sizeof m, "%zu", data->rows->m);
    snprintf(d, sizeof d, "%zu", data->rows->d);
    snprintf(n, sizeof n, "%zu", data->n_pool);
    if (pipe(down)) return cli_set_error(err, WO_ERR_IO, "no pipe: %s", strerror(errno));
    if (pipe(up)) {
        close(down[0]);
        close(down[1]);
        return cli_set_error(err, WO_ERR_IO, "no pipe: %s", strerror(errno));
    }
    t->process = fork();
    if (t->process == 0) {
        dup2(down[0], STDIN_FILENO);
        dup2(up[1], STDOUT_FILENO);
        for (int i = 0; i < 2; i++) {
            close(down[i]);
            close(up[i]);
        }
        execl("/usr/bin/python3", "python3", BENCH_DIR "/torch_full.py", t->folder, m, d, n, (char *)NULL);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    if (t->process > 0 && (t->to = fdopen(down[1], "w")) && (t->from = fdopen(up[0], "r"))) return WO_OK;
    if (!t->to) close(down[1]);
    if (!t->from) close(up[0]);
    return cli_set_error(err, WO_ERR_IO, "cannot start a process: %s", strerror(errno));
}

static bool read_line(bench_torch *t)
{
    const ssize_t n = getline(&t->line, &t->room, t->from);
    if (n > 0 && t->line[n - 1] == '\n') t->line[n - 1] = '\0';
    return n > 0;
}

wo_status bench_torch_start(const bench_data *data, bench_torch **torch, wo_error *err)
{
    const woi_dense *rows = data->rows;
    const char *tmp = getenv("TMPDIR");
    bench_torch *t = calloc(1, sizeof *t);
    float *zeros = rows->b ? NULL : calloc(rows->m, sizeof *zeros);
    wo_status status = WO_OK;
    if (!t || (!rows->b && !zeros)) status = cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    if (!status) {
        snprintf(t->folder, sizeof t->folder, "%.30s/wideout-torch.XXXXXX",
                 tmp && *tmp && strlen(tmp) < 30 ? tmp : "/tmp");
        if (!mkdtemp(t->folder)) {
            t->folder[0] = '\0';
            status = cli_set_error(err, WO_ERR_IO, "cannot make a temporary folder: %s", strerror(errno));
        }
    }
    if (!status) status = write_part(t, parts[0], rows->w, rows->m * rows->d, err);
    if (!status) status = write_part(t, parts[1], rows->b ? rows->b : zeros, rows->m, err);
    if (!status) status = write_part(t, parts[2], data->judged.queries, data->n_pool * rows->d, err);
    if (!status) status = start_process(t, data, err);
    if (!status) {
        signal(SIGPIPE, SIG_IGN); /* a process that died is a failed read */
        if (!read_line(t) || strncmp(t->line, "torch ", 6) != 0)
            status = cli_set_error(err, WO_ERR_UNSUPPORTED, "PyTorch cannot be imported: install python3-torch");
        else
            snprintf(t->version, sizeof t->version, "%s", t->line + 6);
    }
    free(zeros);
    if (status)
        bench_torch_stop(t);
    else
        *torch = t;
    return status;
}

wo_status bench_torch_search(bench_torch *t, const bench_call *call, bench_took *took, wo_error *err)
{
    fprintf(t->to, "%zu %zu %zu %d %d\n", call->first, call->n, call->k, call->threads, call->ids != NULL);
    if (fflush(t->to) || !read_line(t) || sscanf(t->line, "%lf %lf", &took->wall_s, &took->cpu_s) != 2)
        return cli_set_error(err, WO_ERR_UNSUPPORTED, "PyTorch's process ended");
    if (!call->ids) return WO_OK;
    if (!read_line(t)) return cli_set_error(err, WO_ERR_UNSUPPORTED, "PyTorch's process ended");
    char *at = t->line;
    for (size_t i = 0; i < call->n * call->k; i++) call->ids[i] = (int32_t)strtol(at, &at, 10);
    return WO_OK;
}

const char *bench_torch_version(const bench_torch *t)
{
    return t->version;
}

void bench_torch_stop(bench_torch *t)
{
    if (!t) return;
    if (t->to) fclose(t->to); /* its input ends, and so does it */
    if (t->from) fclose(t->from);
    if (t->process > 0) waitpid(t->process, NULL, 0);
    char path[128];
    for (int i = 0; t->folder[0] && i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", t->folder, parts[i]);
        unlink(path);
    }
    if (t->folder[0]) rmdir(t->folder);
    free(t->line);
    free(t);
}
