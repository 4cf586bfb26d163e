BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE alert (
	id INTEGER NOT NULL, 
	fingerprint VARCHAR(32) NOT NULL, 
	topic VARCHAR(16) NOT NULL, 
	machine TEXT NOT NULL, 
	family TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	ending VARCHAR(16) NOT NULL, 
	muted_until DATE, 
	closed_at_commit VARCHAR(64) NOT NULL, 
	opened_at BIGINT NOT NULL, 
	changed_at BIGINT NOT NULL, 
	content JSON NOT NULL, 
	owner TEXT DEFAULT '' NOT NULL, 
	since BIGINT DEFAULT '0' NOT NULL, 
	size FLOAT DEFAULT '0' NOT NULL, 
	search TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_alert PRIMARY KEY (id), 
	CONSTRAINT uq_alert_fingerprint UNIQUE (fingerprint)
);
INSERT INTO "alert" VALUES(1,'22a43a143f7131b3bef1b90ced786986','slower','h200-grouped','grouped','new','',NULL,'',1795706134443,1795706134443,'{"topic": "slower", "machine": "h200-grouped", "family": "grouped", "before": "1414141414141414141414141414141414141414", "commits": ["1515151515151515151515151515151515151515"], "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "members": [{"series": {"machine": "h200-grouped", "family": "grouped", "suite": "grouped", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1717171717171717171717171717171717171717", "size": 0.07697705211057287, "low": 0.07593473018514411, "high": 0.07801937403600163, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07697705211057287, "before": "1414141414141414141414141414141414141414", "after": "1515151515151515151515151515151515151515", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-grouped", "family": "grouped", "suite": "grouped", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1717171717171717171717171717171717171717", "size": 0.07683735656151874, "low": 0.07596766638604048, "high": 0.077707046736997, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07683735656151874, "before": "1414141414141414141414141414141414141414", "after": "1515151515151515151515151515151515151515", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-grouped", "family": "grouped", "suite": "grouped", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1717171717171717171717171717171717171717", "size": 0.07625435132745156, "low": 0.07515801300451358, "high": 0.07735068965038955, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07625435132745156, "before": "1414141414141414141414141414141414141414", "after": "1616161616161616161616161616161616161616", "unsettled": false, "old": null, "new": null}], "since": 1601814400000, "also_on": [], "owner": "", "gone": false, "old": false, "text": "", "unknown": "no repository", "excuse": null}','',1601814400000,7.69770521105728744437e-02,'grouped h200-grouped slower unknown range 14141414..15151515 grouped.triton m=8,k=64 cold grouped.triton m=64,k=64 cold grouped.triton m=1,k=64 cold');
INSERT INTO "alert" VALUES(2,'a1ca863948c6c8232e3113a85e8552c0','slower','h200-hgemm','hgemm','resolved','fixed',NULL,'1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e',1795706134463,1795706135482,'{"topic": "slower", "machine": "h200-hgemm", "family": "hgemm", "before": "1717171717171717171717171717171717171717", "commits": ["1818181818181818181818181818181818181818"], "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "members": [{"series": {"machine": "h200-hgemm", "family": "hgemm", "suite": "hgemm", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a", "size": 0.0771541417798251, "low": 0.07605111894921109, "high": 0.07825716461043912, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.0771541417798251, "before": "1717171717171717171717171717171717171717", "after": "1818181818181818181818181818181818181818", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-hgemm", "family": "hgemm", "suite": "hgemm", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a", "size": 0.07678332619478012, "low": 0.07583473519115967, "high": 0.07773191719840057, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07678332619478012, "before": "1717171717171717171717171717171717171717", "after": "1818181818181818181818181818181818181818", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-hgemm", "family": "hgemm", "suite": "hgemm", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a", "size": 0.07610230858594497, "low": 0.07511741312997959, "high": 0.07708720404191034, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07610230858594497, "before": "1717171717171717171717171717171717171717", "after": "1818181818181818181818181818181818181818", "unsettled": false, "old": null, "new": null}], "since": 1601987200000, "also_on": [], "owner": "", "gone": false, "old": false, "text": "", "unknown": "no repository", "excuse": null}','',1601987200000,0.0771541417798251,'hgemm h200-hgemm slower unknown range 17171717..18181818 hgemm.triton m=1,k=64 cold hgemm.triton m=64,k=64 cold hgemm.triton m=8,k=64 cold');
INSERT INTO "alert" VALUES(3,'2f2a56fa98cbffd6289592ac638e2507','faster','h200-int4','int4','resolved','recorded',NULL,'1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e',1795706134464,1795706134464,'{"topic": "faster", "machine": "h200-int4", "family": "int4", "before": "1818181818181818181818181818181818181818", "commits": ["1919191919191919191919191919191919191919"], "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "members": [{"series": {"machine": "h200-int4", "family": "int4", "suite": "int4", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b", "size": -0.10524462916533028, "low": -0.10662376088448168, "high": -0.10386549744617889, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": -0.10524462916533028, "before": "1818181818181818181818181818181818181818", "after": "1919191919191919191919191919191919191919", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-int4", "family": "int4", "suite": "int4", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b", "size": -0.10489215647032873, "low": -0.10595604364055117, "high": -0.1038282693001063, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": -0.10489215647032873, "before": "1818181818181818181818181818181818181818", "after": "1919191919191919191919191919191919191919", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-int4", "family": "int4", "suite": "int4", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b", "size": -0.10470808968810036, "low": -0.10576785664115533, "high": -0.10364832273504539, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": -0.10470808968810036, "before": "1818181818181818181818181818181818181818", "after": "1919191919191919191919191919191919191919", "unsettled": false, "old": null, "new": null}], "since": 1602073600000, "also_on": [], "owner": "", "gone": false, "old": false, "text": "", "unknown": "no repository", "excuse": null}','',1602073600000,-1.05244629165330283449e-01,'int4 h200-int4 faster unknown range 18181818..19191919 int4.triton m=1,k=64 cold int4.triton m=64,k=64 cold int4.triton m=8,k=64 cold');
INSERT INTO "alert" VALUES(4,'3ca7607422edc460917c6549f69e1205','slower','h200-kda','kda','muted','','2027-01-31','',1795706134464,1795706134978,'{"topic": "slower", "machine": "h200-kda", "family": "kda", "before": "0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c", "commits": ["0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d"], "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "members": [{"series": {"machine": "h200-kda", "family": "kda", "suite": "kda", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "size": 0.07721133714969886, "low": 0.0761889669911095, "high": 0.07823370730828821, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07721133714969886, "before": "0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c", "after": "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-kda", "family": "kda", "suite": "kda", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "size": 0.07684879258224547, "low": 0.07550175509655886, "high": 0.07819583006793208, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07684879258224547, "before": "0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c", "after": "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-kda", "family": "kda", "suite": "kda", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "size": 0.07662839125213455, "low": 0.07552611002130974, "high": 0.07773067248295937, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07662839125213455, "before": "0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c", "after": "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d", "unsettled": false, "old": null, "new": null}], "since": 1601036800000, "also_on": [], "owner": "", "gone": false, "old": false, "text": "", "unknown": "no repository", "excuse": null}','',1601036800000,7.72113371496988554198e-02,'kda h200-kda slower unknown range 0c0c0c0c..0d0d0d0d kda.triton m=64,k=64 cold kda.triton m=1,k=64 cold kda.triton m=8,k=64 cold');
INSERT INTO "alert" VALUES(5,'8281f3601993875721b46be426aa69e6','slower','h200-linear','linear','acknowledged','',NULL,'',1795706134464,1795706134907,'{"topic": "slower", "machine": "h200-linear", "family": "linear", "before": "0808080808080808080808080808080808080808", "commits": ["0909090909090909090909090909090909090909"], "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "members": [{"series": {"machine": "h200-linear", "family": "linear", "suite": "linear", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "size": 0.07787189215203355, "low": 0.07680420151713574, "high": 0.07893958278693136, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07787189215203355, "before": "0808080808080808080808080808080808080808", "after": "0909090909090909090909090909090909090909", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-linear", "family": "linear", "suite": "linear", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "size": 0.0767616350219969, "low": 0.07540785906289321, "high": 0.07811541098110059, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.0767616350219969, "before": "0808080808080808080808080808080808080808", "after": "0909090909090909090909090909090909090909", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-linear", "family": "linear", "suite": "linear", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "size": 0.07662401423593823, "low": 0.07518351326441289, "high": 0.07806451520746358, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07662401423593823, "before": "0808080808080808080808080808080808080808", "after": "0909090909090909090909090909090909090909", "unsettled": false, "old": null, "new": null}], "since": 1600691200000, "also_on": [], "owner": "", "gone": false, "old": false, "text": "", "unknown": "no repository", "excuse": null}','',1600691200000,7.7871892152033550527e-02,'linear h200-linear slower unknown range 08080808..09090909 linear.triton m=1,k=64 cold linear.triton m=8,k=64 cold linear.triton m=64,k=64 cold');
INSERT INTO "alert" VALUES(6,'0ae0285656fa4daa8bb25dca14b76ee8','slower','h200-norm','norm','resolved','intended',NULL,'1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e',1795706134464,1795706135202,'{"topic": "slower", "machine": "h200-norm", "family": "norm", "before": "1010101010101010101010101010101010101010", "commits": ["1111111111111111111111111111111111111111"], "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "members": [{"series": {"machine": "h200-norm", "family": "norm", "suite": "norm", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1313131313131313131313131313131313131313", "size": 0.07709885854168941, "low": 0.07574474099439249, "high": 0.07845297608898633, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07709885854168941, "before": "1010101010101010101010101010101010101010", "after": "1111111111111111111111111111111111111111", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-norm", "family": "norm", "suite": "norm", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1313131313131313131313131313131313131313", "size": 0.07708091937165334, "low": 0.07620916383603142, "high": 0.07795267490727527, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07708091937165334, "before": "1010101010101010101010101010101010101010", "after": "1111111111111111111111111111111111111111", "unsettled": false, "old": null, "new": null}, {"series": {"machine": "h200-norm", "family": "norm", "suite": "norm", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1313131313131313131313131313131313131313", "size": 0.07689891114475644, "low": 0.07553603363922755, "high": 0.07826178865028534, "confidence": 1.0, "cause": {"kind": "unknown range", "sentence": "no commit can be named, as no git repository is at hand", "evidence": []}, "left": 0.07689891114475644, "before": "1010101010101010101010101010101010101010", "after": "1111111111111111111111111111111111111111", "unsettled": false, "old": null, "new": null}], "since": 1601382400000, "also_on": [], "owner": "", "gone": false, "old": false, "text": "", "unknown": "no repository", "excuse": null}','',1601382400000,7.70988585416894078861e-02,'norm h200-norm slower unknown range 10101010..11111111 norm.triton m=64,k=64 cold norm.triton m=1,k=64 cold norm.triton m=8,k=64 cold');
INSERT INTO "alert" VALUES(7,'69e718c0ef3ef1e16992c7f4070ee16b','silent','h200-grouped','','new','',NULL,'',1795706134464,1795706134464,'{"topic": "silent", "machine": "h200-grouped", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-grouped has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "text": "h200-grouped has reported nothing since 2020-10-12", "unknown": "", "excuse": null}','',0,0.0,'h200-grouped silent unexplained 1e1e1e1e.. h200-grouped has reported nothing since 2020-10-12');
INSERT INTO "alert" VALUES(8,'1cb6c8f0a5185f3f08abf1e5ad5d817f','silent','h200-hgemm','','new','',NULL,'',1795706134464,1795706134464,'{"topic": "silent", "machine": "h200-hgemm", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-hgemm has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "text": "h200-hgemm has reported nothing since 2020-10-12", "unknown": "", "excuse": null}','',0,0.0,'h200-hgemm silent unexplained 1e1e1e1e.. h200-hgemm has reported nothing since 2020-10-12');
INSERT INTO "alert" VALUES(9,'c208a32838bc0b1e8812d3e246c60f12','silent','h200-int4','','new','',NULL,'',1795706134464,1795706134464,'{"topic": "silent", "machine": "h200-int4", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-int4 has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "text": "h200-int4 has reported nothing since 2020-10-12", "unknown": "", "excuse": null}','',0,0.0,'h200-int4 silent unexplained 1e1e1e1e.. h200-int4 has reported nothing since 2020-10-12');
INSERT INTO "alert" VALUES(10,'1f2b9fd46d16c9032bb935a4f05e3f5f','silent','h200-kda','','new','',NULL,'',1795706134464,1795706134464,'{"topic": "silent", "machine": "h200-kda", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-kda has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "text": "h200-kda has reported nothing since 2020-10-12", "unknown": "", "excuse": null}','',0,0.0,'h200-kda silent unexplained 1e1e1e1e.. h200-kda has reported nothing since 2020-10-12');
INSERT INTO "alert" VALUES(11,'2a3543aca12a9660662ed40ac3528a83','silent','h200-linear','','new','',NULL,'',1795706134464,1795706134464,'{"topic": "silent", "machine": "h200-linear", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-linear has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "text": "h200-linear has reported nothing since 2020-10-12", "unknown": "", "excuse": null}','',0,0.0,'h200-linear silent unexplained 1e1e1e1e.. h200-linear has reported nothing since 2020-10-12');
INSERT INTO "alert" VALUES(12,'43ad8bfb69c07a3188bcace13f5ad6e9','silent','h200-norm','','new','',NULL,'',1795706134464,1795706134464,'{"topic": "silent", "machine": "h200-norm", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-norm has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "text": "h200-norm has reported nothing since 2020-10-12", "unknown": "", "excuse": null}','',0,0.0,'h200-norm silent unexplained 1e1e1e1e.. h200-norm has reported nothing since 2020-10-12');
CREATE TABLE alert_clock (
	id INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	CONSTRAINT pk_alert_clock PRIMARY KEY (id)
);
INSERT INTO "alert_clock" VALUES(1,7);
CREATE TABLE alert_event (
	id INTEGER NOT NULL, 
	alert_id INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	who TEXT NOT NULL, 
	what VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	note TEXT NOT NULL, 
	CONSTRAINT pk_alert_event PRIMARY KEY (id), 
	CONSTRAINT fk_alert_event_alert_id FOREIGN KEY(alert_id) REFERENCES alert (id)
);
INSERT INTO "alert_event" VALUES(1,1,1795706134443,'lockstep','opened','new','no commit can be named, as no git repository is at hand');
INSERT INTO "alert_event" VALUES(2,2,1795706134464,'lockstep','opened','new','no commit can be named, as no git repository is at hand');
INSERT INTO "alert_event" VALUES(3,3,1795706134464,'lockstep','opened','resolved','recorded; no action needed');
INSERT INTO "alert_event" VALUES(4,4,1795706134464,'lockstep','opened','new','no commit can be named, as no git repository is at hand');
INSERT INTO "alert_event" VALUES(5,5,1795706134464,'lockstep','opened','new','no commit can be named, as no git repository is at hand');
INSERT INTO "alert_event" VALUES(6,6,1795706134464,'lockstep','opened','new','no commit can be named, as no git repository is at hand');
INSERT INTO "alert_event" VALUES(7,7,1795706134464,'lockstep','opened','new','h200-grouped has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(8,8,1795706134464,'lockstep','opened','new','h200-hgemm has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(9,9,1795706134464,'lockstep','opened','new','h200-int4 has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(10,10,1795706134464,'lockstep','opened','new','h200-kda has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(11,11,1795706134464,'lockstep','opened','new','h200-linear has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(12,12,1795706134464,'lockstep','opened','new','h200-norm has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(13,5,1795706134909,'ada','acknowledged','acknowledged','looking');
INSERT INTO "alert_event" VALUES(14,4,1795706135000,'bob','muted','muted','until 2027-01-31: known driver issue');
INSERT INTO "alert_event" VALUES(15,6,1795706135202,'ada','resolved','resolved','a more precise sum');
INSERT INTO "alert_event" VALUES(16,1,1795706135289,'mira','comment','new','seen on two machines');
INSERT INTO "alert_event" VALUES(17,2,1795706135483,'bob','resolved','resolved','reverted');
CREATE TABLE alert_member (
	id INTEGER NOT NULL, 
	alert_id INTEGER NOT NULL, 
	key_hash VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_alert_member PRIMARY KEY (id), 
	CONSTRAINT uq_alert_member_key_hash UNIQUE (key_hash), 
	CONSTRAINT fk_alert_member_alert_id FOREIGN KEY(alert_id) REFERENCES alert (id)
);
INSERT INTO "alert_member" VALUES(1,1,'4c06816d96bf2d8f68313d6ccfe2cea2');
INSERT INTO "alert_member" VALUES(2,1,'87e0d8e83f5e10ec8de1294519a6bb51');
INSERT INTO "alert_member" VALUES(3,1,'16e7645899e3b4e5f2fc3484b6b5a34e');
INSERT INTO "alert_member" VALUES(4,2,'3e107d2c7fc2439109724e48f836b822');
INSERT INTO "alert_member" VALUES(5,2,'49cdd73c0fb4adf26e9d16446a96ce59');
INSERT INTO "alert_member" VALUES(6,2,'78cdbcdf2ca2049638886d22dec09316');
INSERT INTO "alert_member" VALUES(7,3,'06f41551423aea08bf12a933b65319c6');
INSERT INTO "alert_member" VALUES(8,3,'787db314eaa5b250260fa78a085ca235');
INSERT INTO "alert_member" VALUES(9,3,'8cf0ddbbbe1e1dbfa8436ead88e80173');
INSERT INTO "alert_member" VALUES(10,4,'b80adba51971431b168768d06062b19c');
INSERT INTO "alert_member" VALUES(11,4,'14ee4eb32816d955011ae8e33ac52bd1');
INSERT INTO "alert_member" VALUES(12,4,'08bdf8c129321e73174b9bc560958cc1');
INSERT INTO "alert_member" VALUES(13,5,'e611a7338d174dc844c3d22cc7be5ead');
INSERT INTO "alert_member" VALUES(14,5,'e791d77d8772c11b582772e86fe71c96');
INSERT INTO "alert_member" VALUES(15,5,'0cc0ee59ffe3fe4be6d49d0da9344e85');
INSERT INTO "alert_member" VALUES(16,6,'8b7e0577a5b04688cb2f358d65cbc38d');
INSERT INTO "alert_member" VALUES(17,6,'2b05938b3b3c5bfe64e98a11bc18dc19');
INSERT INTO "alert_member" VALUES(18,6,'fef686c7adc8f25d7bfecb337db27c2e');
CREATE TABLE outbox (
	id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	receiver VARCHAR(16) NOT NULL, 
	alert_id INTEGER, 
	title TEXT NOT NULL, 
	body TEXT NOT NULL, 
	severity VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	attempts INTEGER NOT NULL, 
	due_at BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	done_at BIGINT, 
	error TEXT NOT NULL, 
	CONSTRAINT pk_outbox PRIMARY KEY (id), 
	CONSTRAINT uq_outbox_key UNIQUE ("key", receiver), 
	CONSTRAINT fk_outbox_alert_id FOREIGN KEY(alert_id) REFERENCES alert (id)
);
INSERT INTO "outbox" VALUES(1,'event-1','9e79c914608a5e89',1,'grouped on h200-grouped slower by 8.0 % in 14141414..15151515: grouped.triton M=8,K=64 cold and 2 more','cause: unknown range: no commit can be named, as no git repository is at hand
range: 141414141414..151515151515, and the commits in between are unknown: name the git repository with --repo FOLDER
   +8.0 % (+7.9 … +8.1 %)  grouped.triton M=8,K=64 cold
   +8.0 % (+7.9 … +8.1 %)  grouped.triton M=64,K=64 cold
   +7.9 % (+7.8 … +8.0 %)  grouped.triton M=1,K=64 cold
reproduce: lockstep gate --base 141414141414 --head 151515151515 --family grouped --case M=8,K=64 --variant triton --l2 cold
lockstep alerts show 1','warning','due',1,1795706168004,1795706137646,NULL,'the receiver did not accept the message');
INSERT INTO "outbox" VALUES(2,'event-5','9e79c914608a5e89',5,'linear on h200-linear slower by 8.1 % in 08080808..09090909: linear.triton M=1,K=64 cold and 2 more','cause: unknown range: no commit can be named, as no git repository is at hand
range: 080808080808..090909090909, and the commits in between are unknown: name the git repository with --repo FOLDER
   +8.1 % (+8.0 … +8.2 %)  linear.triton M=1,K=64 cold
   +8.0 % (+7.8 … +8.1 %)  linear.triton M=8,K=64 cold
   +8.0 % (+7.8 … +8.1 %)  linear.triton M=64,K=64 cold
reproduce: lockstep gate --base 080808080808 --head 090909090909 --family linear --case M=1,K=64 --variant triton --l2 cold
lockstep alerts show 5','warning','due',1,1795706168065,1795706137646,NULL,'the receiver did not accept the message');
INSERT INTO "outbox" VALUES(3,'event-7','9e79c914608a5e89',7,'h200-grouped has reported nothing since 2020-10-12','cause: unexplained: h200-grouped has reported nothing since 2020-10-12
lockstep alerts show 7','warning','due',1,1795706168134,1795706137646,NULL,'the receiver did not accept the message');
INSERT INTO "outbox" VALUES(4,'event-8','9e79c914608a5e89',8,'h200-hgemm has reported nothing since 2020-10-12','cause: unexplained: h200-hgemm has reported nothing since 2020-10-12
lockstep alerts show 8','warning','due',1,1795706168428,1795706137646,NULL,'the receiver did not accept the message');
INSERT INTO "outbox" VALUES(5,'event-9','9e79c914608a5e89',9,'h200-int4 has reported nothing since 2020-10-12','cause: unexplained: h200-int4 has reported nothing since 2020-10-12
lockstep alerts show 9','warning','due',1,1795706168462,1795706137646,NULL,'the receiver did not accept the message');
INSERT INTO "outbox" VALUES(6,'event-10','9e79c914608a5e89',10,'h200-kda has reported nothing since 2020-10-12','cause: unexplained: h200-kda has reported nothing since 2020-10-12
lockstep alerts show 10','warning','due',1,1795706168484,1795706137646,NULL,'the receiver did not accept the message');
INSERT INTO "outbox" VALUES(7,'event-11','9e79c914608a5e89',11,'h200-linear has reported nothing since 2020-10-12','cause: unexplained: h200-linear has reported nothing since 2020-10-12
lockstep alerts show 11','warning','due',1,1795706168527,1795706137646,NULL,'the receiver did not accept the message');
INSERT INTO "outbox" VALUES(8,'event-12','9e79c914608a5e89',12,'h200-norm has reported nothing since 2020-10-12','cause: unexplained: h200-norm has reported nothing since 2020-10-12
lockstep alerts show 12','warning','due',1,1795706168602,1795706137646,NULL,'the receiver did not accept the message');
CREATE INDEX ix_alert_place ON alert (machine, family);
CREATE INDEX ix_alert_changed_at ON alert (changed_at);
CREATE INDEX ix_alert_list ON alert (state, machine, family, owner, topic, since, opened_at, size, id);
CREATE INDEX ix_alert_member_alert_id ON alert_member (alert_id);
CREATE INDEX ix_alert_event_alert_id ON alert_event (alert_id);
CREATE INDEX ix_outbox_alert_id ON outbox (alert_id);
CREATE INDEX ix_outbox_due_at ON outbox (due_at);
CREATE TRIGGER alert_event_no_update BEFORE UPDATE ON alert_event BEGIN SELECT RAISE(ABORT, 'alert_event is append-only'); END;
CREATE TRIGGER alert_event_no_delete BEFORE DELETE ON alert_event BEGIN SELECT RAISE(ABORT, 'alert_event is append-only'); END;
COMMIT;
