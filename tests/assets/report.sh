#!/bin/sh
# A shell script that reports on the descriptor for reports; what it prints is text.
echo "training with rate $rate"
echo "{\"steps\": 1, \"score\": $rate, \"loss\": 0.25}" >&"$PROTEIN_REPORT_FD"
echo '{"steps": 1, "level": "info"}'
