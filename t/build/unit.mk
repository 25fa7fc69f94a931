# The C unit tests: t/unit/ut_NAME.c with all of src/core.  Called by
# build.sh with OUT, CFLAGS and LIBS.

CORE = $(patsubst src/core/%.c,$(OUT)/%.o,$(sort $(wildcard src/core/*.c)))

all: $(patsubst t/unit/%.c,$(OUT)/%,$(sort $(wildcard t/unit/ut_*.c)))

$(OUT)/ut_%: $(OUT)/ut_%.o $(CORE)
	$(CC) $(CFLAGS) -o $@ $^ $(LIBS)

$(OUT)/%.o: src/core/%.c
	$(CC) $(CFLAGS) -Isrc/core -MMD -c -o $@ $<

$(OUT)/ut_%.o: t/unit/ut_%.c
	$(CC) $(CFLAGS) -Isrc/core -It/unit -MMD -c -o $@ $<

.PRECIOUS: $(OUT)/%.o
.PHONY: all

-include $(wildcard $(OUT)/*.d)
