/* The policies and noises of D4RL-like data, found by trying: what they reach is in docs/control.md. Medium policies
 * are those whose own level is middling, with some noise: from a strong policy with much noise, a model could learn
 * the strong one. */
#include "control/d4rl_plans.h"

const mr_d4rl_plans mr_d4rl_all_plans[] = {
    {/* hopper */
     .medium = {1000000, 1422, 379, {{1, "ppo", 0, .22}}},
     .replay = {402000,
                467,
                511,
                {{.1, "ppo", 0, 1.2},
                 {.15, "ppo", 0, .8},
                 {.15, "ppo", 0, .6},
                 {.2, "ppo", 0, .4},
                 {.15, "ppo", 0, .3},
                 {.1, "ppo", 0, .25},
                 {.15, "ppo", 0, .22}}},
     .expert = {1000000, 3511, 329, {{1, "trpo", .3, 0}}}},
    {/* halfcheetah */
     .medium = {1000000, 4770, 356, {{1, "ppo", 0, .1}}},
     .replay = {202000,
                3093,
                1681,
                {{.04, "trpo", 1, 1},
                 {.05, "trpo", 1, .6},
                 {.07, "trpo", 1, .3},
                 {.1, "trpo", 1, 0},
                 {.11, "a2c", 1, .3},
                 {.22, "a2c", 1, 0},
                 {.41, "ppo", 0, .1}}},
     .expert = {1000000, 10656, 442, {{1, "tqc", 1, .1}}}},
    {/* walker2d */
     .medium = {1000000, 2852, 1095, {{1, "tqc", 1, .08}}},
     .replay = {302000,
                683,
                896,
                {{.08, "tqc", 1, 1.5},
                 {.19, "tqc", 1, 1},
                 {.23, "tqc", 1, .7},
                 {.15, "tqc", 1, .5},
                 {.15, "tqc", 1, .4},
                 {.2, "tqc", 1, .08}}},
     .expert = {1000000, 4921, 136, {{1, "trpo", .1, 0}}}},
};
