#include "textflag.h"

DATA quotes<>+0(SB)/8, $0x2222222222222222
GLOBL quotes<>(SB), RODATA|NOPTR, $8
DATA slashes<>+0(SB)/8, $0x5c5c5c5c5c5c5c5c
GLOBL slashes<>(SB), RODATA|NOPTR, $8
DATA spaces<>+0(SB)/8, $0x2020202020202020
GLOBL spaces<>(SB), RODATA|NOPTR, $8

// func skipPlainWide(p *byte, n int) int
//
// A byte is special if it is a quote or a backslash, below a space (the greater of the
// two is not the byte itself), or has its highest bit set.
TEXT ·skipPlainWide(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	XORQ AX, AX
	VPBROADCASTQ quotes<>(SB), Y1
	VPBROADCASTQ slashes<>(SB), Y2
	VPBROADCASTQ spaces<>(SB), Y3
	LEAQ -64(CX), DX // the last offset at which 64 bytes remain
	SUBQ $32, CX

pair:
	CMPQ AX, DX
	JGT  single
	VMOVDQU   (SI)(AX*1), Y4
	VMOVDQU   32(SI)(AX*1), Y8
	VPCMPEQB  Y1, Y4, Y5
	VPCMPEQB  Y2, Y4, Y6
	VPMAXUB   Y3, Y4, Y7
	VPCMPEQB  Y4, Y7, Y7
	VPOR      Y5, Y6, Y5
	VPOR      Y4, Y5, Y5
	VPCMPEQB  Y1, Y8, Y9
	VPCMPEQB  Y2, Y8, Y10
	VPMAXUB   Y3, Y8, Y11
	VPCMPEQB  Y8, Y11, Y11
	VPOR      Y9, Y10, Y9
	VPOR      Y8, Y9, Y9
	VPOR      Y5, Y9, Y9
	VPAND     Y7, Y11, Y11
	VPMOVMSKB Y9, R9
	VPMOVMSKB Y11, R10
	NOTL R10
	ORL  R10, R9
	JNZ  single // one of the two has a special byte
	ADDQ $64, AX
	JMP  pair

single:
	CMPQ AX, CX
	JGT  done
	VMOVDQU   (SI)(AX*1), Y4
	VPCMPEQB  Y1, Y4, Y5
	VPCMPEQB  Y2, Y4, Y6
	VPMAXUB   Y3, Y4, Y7
	VPCMPEQB  Y4, Y7, Y7
	VPOR      Y5, Y6, Y5
	VPOR      Y4, Y5, Y5
	VPMOVMSKB Y5, R9
	VPMOVMSKB Y7, R10
	NOTL R10
	ORL  R10, R9
	JNZ  found
	ADDQ $32, AX
	JMP  single

found:
	BSFL R9, R9
	ADDQ R9, AX

done:
	VZEROUPPER
	MOVQ AX, ret+16(FP)
	RET
