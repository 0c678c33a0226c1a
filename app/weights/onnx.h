/* Export of a model as an ONNX graph, for programs that know nothing of minrnn. */
#ifndef MR_APP_WEIGHTS_ONNX_H
#define MR_APP_WEIGHTS_ONNX_H

#include "minrnn_experimental.h"

/* Writes the net as an ONNX file, atomically. The same net gives the same bytes. Matrices of 8 bits are written as the
 * floats that they stand for. The graph takes ids [batch, time] or values [batch, time, inputs] and the state that an
 * earlier run returned, or zeros where sequences start. It returns the scores and the next state.
 * MR_ECONFIG: the file would have 2 GB or more, or the net has a key that this exporter does not know. */
int mr_export_onnx(mr_net *net, const char *path, mr_error *err);

/* Does a file begin as those do that mr_export_onnx writes? */
int mr_is_our_onnx(const char *path);

#endif
