/* The commands: `minrnn NAME …` calls mr_cmd_NAME with argv[0] = NAME and exits with what it returns. */
#ifndef MR_APP_COMMANDS_COMMANDS_H
#define MR_APP_COMMANDS_COMMANDS_H

int mr_cmd_train(int argc, char **argv);
int mr_cmd_eval(int argc, char **argv);
int mr_cmd_generate(int argc, char **argv);
int mr_cmd_score(int argc, char **argv);
int mr_cmd_info(int argc, char **argv);
int mr_cmd_quantize(int argc, char **argv);
int mr_cmd_import(int argc, char **argv);
int mr_cmd_export(int argc, char **argv);
int mr_cmd_bench(int argc, char **argv);
int mr_cmd_bench_lm(int argc, char **argv);    /* `minrnn bench lm …`, with argv[0] = "lm" */
int mr_cmd_bench_ranks(int argc, char **argv); /* `minrnn bench ranks …`, with argv[0] = "ranks" */
int mr_cmd_check(int argc, char **argv);
int mr_cmd_reproduce(int argc, char **argv);
int mr_cmd_data(int argc, char **argv);
int mr_cmd_data_make(int argc, char **argv); /* `minrnn data make …`, with argv[0] = "make" */
int mr_cmd_rollout(int argc, char **argv);

enum { MR_EXIT_DONE = 0, MR_EXIT_FAILED = 1, MR_EXIT_USAGE = 2 };

#endif
