//! Diffie-Hellman over the finite fields of RFC 7919, appendix A: safe primes p = 7 mod 8, generator 2.
//!
//! The arithmetic is that of `crypto-bigint`: Montgomery multiplication and windowed exponentiation in constant time.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, U2048, U3072, U4096, U6144, U8192};
use zeroize::{Zeroize, Zeroizing};

use super::{AuthError, DhGroup, Random};

/// Bits of a private exponent: above twice the security of every group (RFC 7919 asks for 225 to 400).
const EXPONENT_BITS: u32 = 512;

/// A key pair of one transaction; its private half is cleared when dropped.
pub(super) struct DhKey {
    group: DhGroup,
    exponent: Zeroizing<BoxedUint>,
    public: Vec<u8>,
}

impl DhKey {
    /// A new key pair of `group`; `None` for the null group.
    pub(super) fn generate(
        group: DhGroup,
        random: &mut Random,
    ) -> Result<Option<DhKey>, AuthError> {
        let Some(prime) = prime(group) else {
            return Ok(None);
        };
        let mut bytes = Zeroizing::new([0; EXPONENT_BITS as usize / 8]);
        random.fill(&mut *bytes)?;
        let exponent = Zeroizing::new(BoxedUint::from_be_slice_truncated(&*bytes, EXPONENT_BITS));
        let generator = BoxedUint::from_be_slice_truncated(&[2], group.bits());
        let public = power(prime, generator, &exponent).to_vec();
        Ok(Some(DhKey {
            group,
            exponent,
            public,
        }))
    }

    /// The public value, big endian, as long as the prime.
    pub(super) fn public(&self) -> &[u8] {
        &self.public
    }

    /// The secret shared with whoever has the public value `other`, as long as the prime.
    ///
    /// Fails for a value longer than the prime, for 0, 1 and p - 1, which have few powers, and for larger ones.
    pub(super) fn shared(&self, other: &[u8]) -> Result<Zeroizing<Box<[u8]>>, AuthError> {
        let invalid = AuthError::PublicValue(self.group);
        let prime = prime(self.group).ok_or(invalid.clone())?;
        let value =
            BoxedUint::from_be_slice(other, self.group.bits()).map_err(|_| invalid.clone())?;
        let one = BoxedUint::from_be_slice_truncated(&[1], self.group.bits());
        if value <= one || value >= prime.as_ref().wrapping_sub(&one) {
            return Err(invalid);
        }
        Ok(power(prime, value, &self.exponent))
    }
}

/// base^exponent modulo `prime`, big endian; `base` must be below it and have its precision.
fn power(prime: Odd<BoxedUint>, base: BoxedUint, exponent: &BoxedUint) -> Zeroizing<Box<[u8]>> {
    let params = BoxedMontyParams::new_vartime(prime);
    let mut power = BoxedMontyForm::new(base, &params).pow_bounded_exp(exponent, EXPONENT_BITS);
    let result = Zeroizing::new(power.retrieve());
    power.zeroize();
    Zeroizing::new(result.to_be_bytes())
}

fn prime(group: DhGroup) -> Option<Odd<BoxedUint>> {
    let prime = match group {
        DhGroup::Null => return None,
        DhGroup::Ffdhe2048 => BoxedUint::from(&P2048),
        DhGroup::Ffdhe3072 => BoxedUint::from(&P3072),
        DhGroup::Ffdhe4096 => BoxedUint::from(&P4096),
        DhGroup::Ffdhe6144 => BoxedUint::from(&P6144),
        DhGroup::Ffdhe8192 => BoxedUint::from(&P8192),
    };
    Odd::new(prime).into_option()
}

const P2048: U2048 = U2048::from_be_hex(
    "\
    FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9\
    7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935\
    984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB\
    B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61\
    9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA\
    886B423861285C97FFFFFFFFFFFFFFFF",
);

const P3072: U3072 = U3072::from_be_hex(
    "\
    FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9\
    7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935\
    984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB\
    B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61\
    9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA\
    886B4238611FCFDCDE355B3B6519035BBC34F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91C\
    AEFE130985139270B4130C93BC437944F4FD4452E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0D\
    ABC521979B0DEADA1DBF9A42D5C4484E0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B66C62E37FFFFFFFFFFFFFFFF",
);

const P4096: U4096 = U4096::from_be_hex(
    "\
    FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9\
    7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935\
    984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB\
    B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61\
    9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA\
    886B4238611FCFDCDE355B3B6519035BBC34F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91C\
    AEFE130985139270B4130C93BC437944F4FD4452E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0D\
    ABC521979B0DEADA1DBF9A42D5C4484E0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B669E1EF16E6F52C3164DF4FB\
    7930E9E4E58857B6AC7D5F42D69F6D187763CF1D5503400487F55BA57E31CC7A7135C886EFB4318AED6A1E012D9E6832\
    A907600A918130C46DC778F971AD0038092999A333CB8B7A1A1DB93D7140003C2A4ECEA9F98D0ACC0A8291CDCEC97DCF\
    8EC9B55A7F88A46B4DB5A851F44182E1C68A007E5E655F6AFFFFFFFFFFFFFFFF",
);

const P6144: U6144 = U6144::from_be_hex(
    "\
    FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9\
    7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935\
    984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB\
    B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61\
    9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA\
    886B4238611FCFDCDE355B3B6519035BBC34F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91C\
    AEFE130985139270B4130C93BC437944F4FD4452E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0D\
    ABC521979B0DEADA1DBF9A42D5C4484E0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B669E1EF16E6F52C3164DF4FB\
    7930E9E4E58857B6AC7D5F42D69F6D187763CF1D5503400487F55BA57E31CC7A7135C886EFB4318AED6A1E012D9E6832\
    A907600A918130C46DC778F971AD0038092999A333CB8B7A1A1DB93D7140003C2A4ECEA9F98D0ACC0A8291CDCEC97DCF\
    8EC9B55A7F88A46B4DB5A851F44182E1C68A007E5E0DD9020BFD64B645036C7A4E677D2C38532A3A23BA4442CAF53EA6\
    3BB454329B7624C8917BDD64B1C0FD4CB38E8C334C701C3ACDAD0657FCCFEC719B1F5C3E4E46041F388147FB4CFDB477\
    A52471F7A9A96910B855322EDB6340D8A00EF092350511E30ABEC1FFF9E3A26E7FB29F8C183023C3587E38DA0077D9B4\
    763E4E4B94B2BBC194C6651E77CAF992EEAAC0232A281BF6B3A739C1226116820AE8DB5847A67CBEF9C9091B462D538C\
    D72B03746AE77F5E62292C311562A846505DC82DB854338AE49F5235C95B91178CCF2DD5CACEF403EC9D1810C6272B04\
    5B3B71F9DC6B80D63FDD4A8E9ADB1E6962A69526D43161C1A41D570D7938DAD4A40E329CD0E40E65FFFFFFFFFFFFFFFF",
);

const P8192: U8192 = U8192::from_be_hex(
    "\
    FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9\
    7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935\
    984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB\
    B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61\
    9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA\
    886B4238611FCFDCDE355B3B6519035BBC34F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91C\
    AEFE130985139270B4130C93BC437944F4FD4452E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0D\
    ABC521979B0DEADA1DBF9A42D5C4484E0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B669E1EF16E6F52C3164DF4FB\
    7930E9E4E58857B6AC7D5F42D69F6D187763CF1D5503400487F55BA57E31CC7A7135C886EFB4318AED6A1E012D9E6832\
    A907600A918130C46DC778F971AD0038092999A333CB8B7A1A1DB93D7140003C2A4ECEA9F98D0ACC0A8291CDCEC97DCF\
    8EC9B55A7F88A46B4DB5A851F44182E1C68A007E5E0DD9020BFD64B645036C7A4E677D2C38532A3A23BA4442CAF53EA6\
    3BB454329B7624C8917BDD64B1C0FD4CB38E8C334C701C3ACDAD0657FCCFEC719B1F5C3E4E46041F388147FB4CFDB477\
    A52471F7A9A96910B855322EDB6340D8A00EF092350511E30ABEC1FFF9E3A26E7FB29F8C183023C3587E38DA0077D9B4\
    763E4E4B94B2BBC194C6651E77CAF992EEAAC0232A281BF6B3A739C1226116820AE8DB5847A67CBEF9C9091B462D538C\
    D72B03746AE77F5E62292C311562A846505DC82DB854338AE49F5235C95B91178CCF2DD5CACEF403EC9D1810C6272B04\
    5B3B71F9DC6B80D63FDD4A8E9ADB1E6962A69526D43161C1A41D570D7938DAD4A40E329CCFF46AAA36AD004CF600C838\
    1E425A31D951AE64FDB23FCEC9509D43687FEB69EDD1CC5E0B8CC3BDF64B10EF86B63142A3AB8829555B2F747C932665\
    CB2C0F1CC01BD70229388839D2AF05E454504AC78B7582822846C0BA35C35F5C59160CC046FD8251541FC68C9C86B022\
    BB7099876A460E7451A8A93109703FEE1C217E6C3826E52C51AA691E0E423CFC99E9E31650C1217B624816CDAD9A95F9\
    D5B8019488D9C0A0A1FE3075A577E23183F81D4A3F2FA4571EFC8CE0BA8A4FE8B6855DFE72B0A66EDED2FBABFBE58A30\
    FAFABE1C5D71A87E2F741EF8C1FE86FEA6BBFDE530677F0D97D11D49F7A8443D0822E506A9F4614E011E2A94838FF88C\
    D68C8BB7C5C6424CFFFFFFFFFFFFFFFF",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crypto_bigint::{Limb, NonZero};

    /// The X of each group in RFC 7919, appendix A.
    const GROUPS: [(DhGroup, u64); 5] = [
        (DhGroup::Ffdhe2048, 560_316),
        (DhGroup::Ffdhe3072, 2_625_351),
        (DhGroup::Ffdhe4096, 5_736_041),
        (DhGroup::Ffdhe6144, 15_705_020),
        (DhGroup::Ffdhe8192, 10_965_728),
    ];

    /// floor(2^bits e) with `precision` bits, from the series of 1 / k!.
    fn euler(bits: u32, precision: u32) -> BoxedUint {
        const GUARD: u32 = 64;
        let mut term = number(1, precision).shl(bits + GUARD);
        let mut sum = number(0, precision);
        let mut k = 0;
        while term != number(0, precision) {
            sum = sum.wrapping_add(&term);
            k += 1;
            term = term.div_rem_limb(NonZero::new(Limb(k)).unwrap()).0;
        }
        sum.shr(GUARD)
    }

    fn number(value: u64, precision: u32) -> BoxedUint {
        BoxedUint::from_be_slice_truncated(&value.to_be_bytes(), precision)
    }

    #[test]
    fn primes_follow_the_formula() {
        for (group, x) in GROUPS {
            let bits = group.bits();
            // 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1, modulo 2^b.
            let number = |value| number(value, bits);
            let middle = euler(bits - 130, bits).wrapping_add(number(x)).shl(64);
            let expected = number(0)
                .wrapping_sub(number(1).shl(bits - 64))
                .wrapping_add(middle)
                .wrapping_sub(number(1));
            assert_eq!(*prime(group).unwrap().as_ref(), expected, "{group}");
        }
    }

    /// Miller-Rabin test of n = 3 mod 4 with base `base`.
    fn probably_prime(n: &BoxedUint, base: u64) -> bool {
        let one = number(1, n.bits_precision());
        let minus_one = n.wrapping_sub(&one);
        let params = BoxedMontyParams::new(Odd::new(n.clone()).unwrap());
        let base = BoxedMontyForm::new(number(base, n.bits_precision()), &params);
        let power = base.pow(&minus_one.shr(1)).retrieve();
        power == one || power == minus_one
    }

    #[test]
    fn primes_are_safe_primes() {
        for (group, _) in GROUPS {
            let p = prime(group).unwrap().as_ref().clone();
            let q = p.shr(1);
            for base in [2, 3] {
                assert!(probably_prime(&p, base), "{group}");
                assert!(probably_prime(&q, base), "{group}");
            }
            assert!(!probably_prime(&p.wrapping_sub(number(4, group.bits())), 2));
        }
    }

    #[test]
    fn refuses_values_that_give_the_secret_away() {
        let group = DhGroup::Ffdhe2048;
        let key = DhKey::generate(group, &mut Random::System)
            .unwrap()
            .unwrap();
        let p = prime(group).unwrap().as_ref().clone();
        let below = |k| p.wrapping_sub(number(k, group.bits())).to_be_bytes();
        let refused = [
            below(0).to_vec(),
            below(1).to_vec(),
            vec![0xFF; group.value_len()],
            vec![0; group.value_len()],
            vec![1],
            vec![],
            [&[1], &*below(2)].concat(),
        ];
        for value in refused {
            assert_eq!(
                key.shared(&value),
                Err(AuthError::PublicValue(group)),
                "{value:02X?}"
            );
        }
        assert!(key.shared(&below(2)).is_ok());
        assert!(key.shared(&[2]).is_ok());
    }

    #[test]
    fn both_sides_share_a_secret() {
        for (group, _) in GROUPS {
            let key = || {
                DhKey::generate(group, &mut Random::System)
                    .unwrap()
                    .unwrap()
            };
            let (a, b) = (key(), key());
            assert_ne!(a.public(), b.public());
            assert_eq!(a.public().len(), group.value_len());
            let shared = a.shared(b.public()).unwrap();
            assert_eq!(shared, b.shared(a.public()).unwrap());
            assert_eq!(shared.len(), group.value_len());
        }
    }
}
