BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
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
	CONSTRAINT pk_alert PRIMARY KEY (id), 
	CONSTRAINT uq_alert_fingerprint UNIQUE (fingerprint)
);
INSERT INTO "alert" VALUES(1,'accebefcbce500cefde850a8eda09de3','slower','h200-grouped','grouped','new','',NULL,'',1795706101635,1795706101635,'{"topic": "slower", "machine": "h200-grouped", "family": "grouped", "before": "1414141414141414141414141414141414141414", "commits": ["1515151515151515151515151515151515151515"], "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1515151515151515151515151515151515151515"}]}, "members": [{"series": {"machine": "h200-grouped", "family": "grouped", "suite": "grouped", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1717171717171717171717171717171717171717", "size": 0.07695994035267673, "low": 0.07612478936324343, "high": 0.07779509134211002, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1515151515151515151515151515151515151515"}]}, "left": 0.07695994035267673}, {"series": {"machine": "h200-grouped", "family": "grouped", "suite": "grouped", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1717171717171717171717171717171717171717", "size": 0.07668931868408885, "low": 0.07567626307525688, "high": 0.07770237429292082, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1515151515151515151515151515151515151515"}]}, "left": 0.07668931868408885}, {"series": {"machine": "h200-grouped", "family": "grouped", "suite": "grouped", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1717171717171717171717171717171717171717", "size": 0.07625435132745156, "low": 0.07524349529660597, "high": 0.07726520735829716, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1515151515151515151515151515151515151515"}]}, "left": 0.07625435132745156}], "since": 1601728000000, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": ""}');
INSERT INTO "alert" VALUES(2,'a1ca863948c6c8232e3113a85e8552c0','slower','h200-hgemm','hgemm','resolved','fixed',NULL,'1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e',1795706101747,1795706104042,'{"topic": "slower", "machine": "h200-hgemm", "family": "hgemm", "before": "1717171717171717171717171717171717171717", "commits": ["1818181818181818181818181818181818181818"], "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1818181818181818181818181818181818181818"}]}, "members": [{"series": {"machine": "h200-hgemm", "family": "hgemm", "suite": "hgemm", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a", "size": 0.0771541417798251, "low": 0.07606439136634659, "high": 0.07824389219330362, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1818181818181818181818181818181818181818"}]}, "left": 0.0771541417798251}, {"series": {"machine": "h200-hgemm", "family": "hgemm", "suite": "hgemm", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a", "size": 0.07678332619478012, "low": 0.07568767367581473, "high": 0.07787897871374551, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1818181818181818181818181818181818181818"}]}, "left": 0.07678332619478012}, {"series": {"machine": "h200-hgemm", "family": "hgemm", "suite": "hgemm", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a", "size": 0.07610230858594497, "low": 0.07516979814691521, "high": 0.07703481902497472, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1818181818181818181818181818181818181818"}]}, "left": 0.07610230858594497}], "since": 1601987200000, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": ""}');
INSERT INTO "alert" VALUES(3,'2f2a56fa98cbffd6289592ac638e2507','faster','h200-int4','int4','resolved','recorded',NULL,'1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e',1795706101765,1795706101765,'{"topic": "faster", "machine": "h200-int4", "family": "int4", "before": "1818181818181818181818181818181818181818", "commits": ["1919191919191919191919191919191919191919"], "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1919191919191919191919191919191919191919"}]}, "members": [{"series": {"machine": "h200-int4", "family": "int4", "suite": "int4", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b", "size": -0.10524462916533028, "low": -0.1064119994270661, "high": -0.10407725890359447, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1919191919191919191919191919191919191919"}]}, "left": -0.10524462916533028}, {"series": {"machine": "h200-int4", "family": "int4", "suite": "int4", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b", "size": -0.10489215647032873, "low": -0.10586875868885437, "high": -0.1039155542518031, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1919191919191919191919191919191919191919"}]}, "left": -0.10489215647032873}, {"series": {"machine": "h200-int4", "family": "int4", "suite": "int4", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b", "size": -0.10470808968810036, "low": -0.10576990257126478, "high": -0.10364627680493593, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1919191919191919191919191919191919191919"}]}, "left": -0.10470808968810036}], "since": 1602073600000, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": ""}');
INSERT INTO "alert" VALUES(4,'3ca7607422edc460917c6549f69e1205','slower','h200-kda','kda','muted','','2027-01-31','',1795706101766,1795706103514,'{"topic": "slower", "machine": "h200-kda", "family": "kda", "before": "0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c", "commits": ["0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d"], "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d"}]}, "members": [{"series": {"machine": "h200-kda", "family": "kda", "suite": "kda", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "size": 0.07721133714969886, "low": 0.07618398757571301, "high": 0.0782386867236847, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d"}]}, "left": 0.07721133714969886}, {"series": {"machine": "h200-kda", "family": "kda", "suite": "kda", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "size": 0.07684879258224547, "low": 0.0755591906514146, "high": 0.07813839451307635, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d"}]}, "left": 0.07684879258224547}, {"series": {"machine": "h200-kda", "family": "kda", "suite": "kda", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "size": 0.07662839125213455, "low": 0.07557616520059368, "high": 0.07768061730367543, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d"}]}, "left": 0.07662839125213455}], "since": 1601036800000, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": ""}');
INSERT INTO "alert" VALUES(5,'8281f3601993875721b46be426aa69e6','slower','h200-linear','linear','acknowledged','',NULL,'',1795706101786,1795706103182,'{"topic": "slower", "machine": "h200-linear", "family": "linear", "before": "0808080808080808080808080808080808080808", "commits": ["0909090909090909090909090909090909090909"], "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "0909090909090909090909090909090909090909"}]}, "members": [{"series": {"machine": "h200-linear", "family": "linear", "suite": "linear", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "size": 0.07787189215203355, "low": 0.07673623185168543, "high": 0.07900755245238167, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "0909090909090909090909090909090909090909"}]}, "left": 0.07787189215203355}, {"series": {"machine": "h200-linear", "family": "linear", "suite": "linear", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "size": 0.0767616350219969, "low": 0.07552778934905892, "high": 0.07799548069493488, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "0909090909090909090909090909090909090909"}]}, "left": 0.0767616350219969}, {"series": {"machine": "h200-linear", "family": "linear", "suite": "linear", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "size": 0.07662401423593823, "low": 0.07532834172621242, "high": 0.07791968674566405, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "0909090909090909090909090909090909090909"}]}, "left": 0.07662401423593823}], "since": 1600691200000, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": ""}');
INSERT INTO "alert" VALUES(6,'0ae0285656fa4daa8bb25dca14b76ee8','slower','h200-norm','norm','resolved','intended',NULL,'1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e',1795706101787,1795706103801,'{"topic": "slower", "machine": "h200-norm", "family": "norm", "before": "1010101010101010101010101010101010101010", "commits": ["1111111111111111111111111111111111111111"], "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1111111111111111111111111111111111111111"}]}, "members": [{"series": {"machine": "h200-norm", "family": "norm", "suite": "norm", "variant": "triton", "case": "M=64,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1313131313131313131313131313131313131313", "size": 0.07709885854168941, "low": 0.07593374115145433, "high": 0.07826397593192448, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1111111111111111111111111111111111111111"}]}, "left": 0.07709885854168941}, {"series": {"machine": "h200-norm", "family": "norm", "suite": "norm", "variant": "triton", "case": "M=1,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1313131313131313131313131313131313131313", "size": 0.07708091937165334, "low": 0.07620540956146307, "high": 0.07795642918184362, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1111111111111111111111111111111111111111"}]}, "left": 0.07708091937165334}, {"series": {"machine": "h200-norm", "family": "norm", "suite": "norm", "variant": "triton", "case": "M=8,K=64", "l2": "cold", "quantity": "speedup"}, "reported_at": "1313131313131313131313131313131313131313", "size": 0.07689891114475644, "low": 0.07572818670827926, "high": 0.07806963558123363, "confidence": 1.0, "cause": {"kind": "own commit", "sentence": "nothing but the commits in the range differs", "evidence": [{"what": "commit", "before": "", "after": "1111111111111111111111111111111111111111"}]}, "left": 0.07689891114475644}], "since": 1601382400000, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": ""}');
INSERT INTO "alert" VALUES(7,'69e718c0ef3ef1e16992c7f4070ee16b','silent','h200-grouped','','new','',NULL,'',1795706101806,1795706101806,'{"topic": "silent", "machine": "h200-grouped", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-grouped has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": "h200-grouped has reported nothing since 2020-10-12"}');
INSERT INTO "alert" VALUES(8,'1cb6c8f0a5185f3f08abf1e5ad5d817f','silent','h200-hgemm','','new','',NULL,'',1795706101807,1795706101807,'{"topic": "silent", "machine": "h200-hgemm", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-hgemm has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": "h200-hgemm has reported nothing since 2020-10-12"}');
INSERT INTO "alert" VALUES(9,'c208a32838bc0b1e8812d3e246c60f12','silent','h200-int4','','new','',NULL,'',1795706101822,1795706101822,'{"topic": "silent", "machine": "h200-int4", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-int4 has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": "h200-int4 has reported nothing since 2020-10-12"}');
INSERT INTO "alert" VALUES(10,'1f2b9fd46d16c9032bb935a4f05e3f5f','silent','h200-kda','','new','',NULL,'',1795706101823,1795706101823,'{"topic": "silent", "machine": "h200-kda", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-kda has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": "h200-kda has reported nothing since 2020-10-12"}');
INSERT INTO "alert" VALUES(11,'2a3543aca12a9660662ed40ac3528a83','silent','h200-linear','','new','',NULL,'',1795706101844,1795706101844,'{"topic": "silent", "machine": "h200-linear", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-linear has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": "h200-linear has reported nothing since 2020-10-12"}');
INSERT INTO "alert" VALUES(12,'43ad8bfb69c07a3188bcace13f5ad6e9','silent','h200-norm','','new','',NULL,'',1795706101845,1795706101845,'{"topic": "silent", "machine": "h200-norm", "family": "", "before": "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e", "commits": [], "cause": {"kind": "unexplained", "sentence": "h200-norm has reported nothing since 2020-10-12", "evidence": []}, "members": [], "since": 0, "also_on": [], "owner": "", "gone": false, "old": false, "excuse": null, "text": "h200-norm has reported nothing since 2020-10-12"}');
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
INSERT INTO "alert_event" VALUES(1,1,1795706101745,'lockstep','opened','new','nothing but the commits in the range differs');
INSERT INTO "alert_event" VALUES(2,2,1795706101765,'lockstep','opened','new','nothing but the commits in the range differs');
INSERT INTO "alert_event" VALUES(3,3,1795706101766,'lockstep','opened','resolved','recorded; nobody has to act');
INSERT INTO "alert_event" VALUES(4,4,1795706101785,'lockstep','opened','new','nothing but the commits in the range differs');
INSERT INTO "alert_event" VALUES(5,5,1795706101787,'lockstep','opened','new','nothing but the commits in the range differs');
INSERT INTO "alert_event" VALUES(6,6,1795706101806,'lockstep','opened','new','nothing but the commits in the range differs');
INSERT INTO "alert_event" VALUES(7,7,1795706101807,'lockstep','opened','new','h200-grouped has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(8,8,1795706101821,'lockstep','opened','new','h200-hgemm has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(9,9,1795706101822,'lockstep','opened','new','h200-int4 has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(10,10,1795706101844,'lockstep','opened','new','h200-kda has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(11,11,1795706101845,'lockstep','opened','new','h200-linear has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(12,12,1795706101846,'lockstep','opened','new','h200-norm has reported nothing since 2020-10-12');
INSERT INTO "alert_event" VALUES(13,5,1795706103276,'ada','acknowledged','acknowledged','looking');
INSERT INTO "alert_event" VALUES(14,4,1795706103530,'bob','muted','muted','until 2027-01-31: known driver issue');
INSERT INTO "alert_event" VALUES(15,6,1795706103802,'ada','resolved','resolved','a more precise sum');
INSERT INTO "alert_event" VALUES(16,1,1795706103827,'mira','comment','new','seen on two machines');
INSERT INTO "alert_event" VALUES(17,2,1795706104048,'bob','resolved','resolved','reverted');
CREATE TABLE alert_member (
	id INTEGER NOT NULL, 
	alert_id INTEGER NOT NULL, 
	key_hash VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_alert_member PRIMARY KEY (id), 
	CONSTRAINT uq_alert_member_key_hash UNIQUE (key_hash), 
	CONSTRAINT fk_alert_member_alert_id FOREIGN KEY(alert_id) REFERENCES alert (id)
);
INSERT INTO "alert_member" VALUES(1,1,'87e0d8e83f5e10ec8de1294519a6bb51');
INSERT INTO "alert_member" VALUES(2,1,'4c06816d96bf2d8f68313d6ccfe2cea2');
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
INSERT INTO "outbox" VALUES(1,'event-1','9e79c914608a5e89',1,'grouped on h200-grouped slower by 8.0 % in 15151515: grouped.triton M=64,K=64 cold and 2 more','cause: own commit: nothing but the commits in the range differs
range: commit 151515151515
   +8.0 % (+7.9 … +8.1 %)  grouped.triton M=64,K=64 cold
   +8.0 % (+7.9 … +8.1 %)  grouped.triton M=8,K=64 cold
   +7.9 % (+7.8 … +8.0 %)  grouped.triton M=1,K=64 cold
lockstep alerts show 1','warning','due',1,1795706135919,1795706105829,NULL,'it was not accepted');
INSERT INTO "outbox" VALUES(2,'event-5','9e79c914608a5e89',5,'linear on h200-linear slower by 8.1 % in 09090909: linear.triton M=1,K=64 cold and 2 more','cause: own commit: nothing but the commits in the range differs
range: commit 090909090909
   +8.1 % (+8.0 … +8.2 %)  linear.triton M=1,K=64 cold
   +8.0 % (+7.8 … +8.1 %)  linear.triton M=8,K=64 cold
   +8.0 % (+7.8 … +8.1 %)  linear.triton M=64,K=64 cold
lockstep alerts show 5','warning','due',1,1795706135949,1795706105829,NULL,'it was not accepted');
INSERT INTO "outbox" VALUES(3,'event-7','9e79c914608a5e89',7,'h200-grouped has reported nothing since 2020-10-12','cause: unexplained: h200-grouped has reported nothing since 2020-10-12
lockstep alerts show 7','warning','due',1,1795706135982,1795706105829,NULL,'it was not accepted');
INSERT INTO "outbox" VALUES(4,'event-8','9e79c914608a5e89',8,'h200-hgemm has reported nothing since 2020-10-12','cause: unexplained: h200-hgemm has reported nothing since 2020-10-12
lockstep alerts show 8','warning','due',1,1795706136023,1795706105829,NULL,'it was not accepted');
INSERT INTO "outbox" VALUES(5,'event-9','9e79c914608a5e89',9,'h200-int4 has reported nothing since 2020-10-12','cause: unexplained: h200-int4 has reported nothing since 2020-10-12
lockstep alerts show 9','warning','due',1,1795706136047,1795706105829,NULL,'it was not accepted');
INSERT INTO "outbox" VALUES(6,'event-10','9e79c914608a5e89',10,'h200-kda has reported nothing since 2020-10-12','cause: unexplained: h200-kda has reported nothing since 2020-10-12
lockstep alerts show 10','warning','due',1,1795706136073,1795706105829,NULL,'it was not accepted');
INSERT INTO "outbox" VALUES(7,'event-11','9e79c914608a5e89',11,'h200-linear has reported nothing since 2020-10-12','cause: unexplained: h200-linear has reported nothing since 2020-10-12
lockstep alerts show 11','warning','due',1,1795706136105,1795706105829,NULL,'it was not accepted');
INSERT INTO "outbox" VALUES(8,'event-12','9e79c914608a5e89',12,'h200-norm has reported nothing since 2020-10-12','cause: unexplained: h200-norm has reported nothing since 2020-10-12
lockstep alerts show 12','warning','due',1,1795706136138,1795706105829,NULL,'it was not accepted');
CREATE INDEX ix_alert_place ON alert (machine, family);
CREATE INDEX ix_alert_member_alert_id ON alert_member (alert_id);
CREATE INDEX ix_alert_event_alert_id ON alert_event (alert_id);
CREATE INDEX ix_outbox_alert_id ON outbox (alert_id);
CREATE INDEX ix_outbox_due_at ON outbox (due_at);
CREATE TRIGGER alert_event_no_update BEFORE UPDATE ON alert_event BEGIN SELECT RAISE(ABORT, 'alert_event is append-only'); END;
CREATE TRIGGER alert_event_no_delete BEFORE DELETE ON alert_event BEGIN SELECT RAISE(ABORT, 'alert_event is append-only'); END;
COMMIT;
