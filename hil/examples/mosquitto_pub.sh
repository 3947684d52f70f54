#!/bin/sh
# A foreign client in a bench: mosquitto_pub, one process for each message. The environment
# and the lines on standard output are those of hil/README.md, Your own program.
for sequence in $(seq "$ONCEWAY_MESSAGES"); do
    payload="$ONCEWAY_NAME $sequence"
    hex=$(printf %s "$payload" | od -An -v -tx1 | tr -d ' \n')
    echo "{\"event\": \"publication\", \"sequence\": $sequence, \"topic\": \"$ONCEWAY_TOPIC\"," \
        "\"payload\": \"$hex\"}"
    until mosquitto_pub -V 5 -h 127.0.0.1 -p "$ONCEWAY_PORT" -i "$ONCEWAY_NAME" \
        -q "$ONCEWAY_QOS" -t "$ONCEWAY_TOPIC" -m "$payload" \
        -D publish user-property incarnation "$ONCEWAY_INCARNATION" \
        -D publish user-property seq "$sequence" >&2; do
        echo "{\"event\": \"again\", \"sequence\": $sequence}"
        sleep 1
    done
    [ "$ONCEWAY_QOS" = 0 ] || echo "{\"event\": \"acknowledged\", \"sequence\": $sequence}"
done
