#include "go_asm.h"
#include "textflag.h"

// The kernel jumps here where the linker was given -E _lazaret_entry. early
// may replace the process; else Go starts as if nothing had been.
//
// The frame: 8 and 16 are early's arguments, 24 keeps the stack pointer, and the
// scratch comes after them.
TEXT _lazaret_entry(SB), NOSPLIT|NOFRAME, $0
	MOVD RSP, R19
	SUB  $(const_scratchSize+64), RSP, R20
	AND  $~15, R20
	MOVD R20, RSP
	MOVD R19, 8(RSP)
	MOVD R19, 24(RSP)
	ADD  $64, R20, R0
	MOVD R0, 16(RSP)
	BL   ·early(SB)
	MOVD 24(RSP), R0
	MOVD R0, RSP
	B    _rt0_arm64_linux(SB)
