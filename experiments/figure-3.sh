#!/bin/bash
# The setting of the paper's Figure 3, for those with the hardware: ResNet-18, 200 epochs, a rate from 5e-2 to 3e-6 by a cosine, weight decay
# 5e-4, one process per core; with DEVICE=cuda one per GPU, which was not tried, for none was at hand.
#
#     NODES=4 NODE=0 HUB=host:29500 experiments/figure-3.sh cifar-10 FOLDER      # 32 processes x 32 rows, on each node with its number
#     NODES=2 NODE=0 HUB=host:29500 experiments/figure-3.sh cifar-100 FOLDER     # 32 processes x 16 rows
#
# FOLDER has train and test, each with a folder of pictures per class. PYTHON is the interpreter, HOOKS what to compare, RESULTS the file of
# JSON lines for experiments/ddp_plot.py; NET, PROCESSES, ROWS and EPOCHS make it smaller. The paper sends a hundredth (CIFAR-10) and an
# eightieth (CIFAR-100) of the numbers in float32: here that is the sketch of the gradient with `--wire float32`, beside SGD, PowerSGD, and
# the sketch of the momentum at 240 and 700 times fewer bytes.
set -euo pipefail

case ${1:-} in
    cifar-10) rows=32 ratio=100 ;;
    cifar-100) rows=16 ratio=80 ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
folder=${2:?the folder of pictures}
nodes=${NODES:-1}
python=${PYTHON:-python3}
results=$(realpath -m "${RESULTS:-figure-3-$1.jsonl}")
example=$(dirname "$0")/../python/examples/ddp_resnet18.py

declare -A arguments=(
    [sgd]="--hook none"
    [paper]="--hook core-gradient --wire float32 --ratio $ratio"
    [core-12]="--hook core --ratio 12"
    [core-37]="--hook core --ratio 37"
    [powersgd-4]="--hook powersgd --rank 4"
)
for hook in ${HOOKS:-sgd paper core-12 core-37 powersgd-4}; do
    # shellcheck disable=SC2086
    "$python" -m torch.distributed.run --nnodes "$nodes" --node-rank "${NODE:-0}" --nproc-per-node $((${PROCESSES:-32} / nodes)) \
        --rdzv-backend c10d --rdzv-endpoint "${HUB:-localhost:29500}" --rdzv-id "$hook" "$example" ${arguments[$hook]} \
        --net "${NET:-resnet18}" --data "images:$folder" --rows "${ROWS:-50000}" --batch "$rows" --epochs "${EPOCHS:-200}" --lr 5e-2 \
        --cosine 3e-6 --weight-decay 5e-4 --history 10000 --device "${DEVICE:-cpu}" --json "$results"
done
